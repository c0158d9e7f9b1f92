"""Inputs of models of every task: what is watched of them, by whatever way they come, and what is left out."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

import hydractl as library
from hydractl.errors import ArtifactError, DataError, OptionError
from hydractl.inputs.models import as_checkpoint
from hydractl.monitoring.findings import OF_CLASSES
from hydractl.tasks.task import OneAnswer
from tests.cli.conftest import LABELS, Command, save_vit
from tests.tasks.corpus import save_tagger, sentences
from tests.tasks.encoders import save_encoder

TAGS = ("salt, pepper", "=salt", 'say "salt"')  # which lists of labels and CSV must tell apart
COUNT = 300  # calibration samples, and those of each stream


@dataclass(frozen=True)
class Case:
    """A calibrated file, inputs like those it knows, and others."""

    model: Path
    same: Any
    other: Any
    modality: str = "image"


def pictures(draw: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    return [draw.integers(0, 256, (8, 8, 3), dtype=np.uint8) for _ in range(COUNT)]


def grey() -> list[np.ndarray[Any, Any]]:
    return [np.full((8, 8, 3), at % 256, dtype=np.uint8) for at in range(COUNT)]


def classes(folder: Path, draw: np.random.Generator) -> Case:
    vit, images = save_vit(folder / "vit", initializer_range=0.5), pictures(draw)
    answers = list(library.predict(vit, images).labels)
    answers[::2] = draw.choice(LABELS, len(answers[::2])).tolist()
    library.calibrate(vit, id_data=list(zip(images, answers, strict=True)), output=folder / "model")
    return Case(folder / "model", pictures(draw), grey())


def labels(folder: Path, draw: np.random.Generator) -> Case:
    more: Any = {"problem_type": "multi_label_classification", "initializer_range": 0.5}
    vit = save_vit(
        folder / "vit", **more, id2label=dict(enumerate(TAGS)), label2id={tag: at for at, tag in enumerate(TAGS)}
    )
    images = pictures(draw)
    tags = [list(answer) for answer in library.predict(vit, images).labels]
    tags[::2] = [[TAGS[at] for at in np.flatnonzero(draw.integers(0, 2, 3))] for _ in tags[::2]]
    features = datasets.Features(image=datasets.Image(), tags=datasets.List(datasets.Value("string")))
    table = datasets.Dataset.from_dict({"image": images, "tags": tags}, features=features)
    library.calibrate(vit, id_data=table, label_column="tags", output=folder / "model")
    return Case(folder / "model", pictures(draw), grey())


def numbers(folder: Path, draw: np.random.Generator) -> Case:
    vit = save_vit(folder / "vit", id2label={0: "age"}, label2id={"age": 0}, initializer_range=0.5)
    data = [(image, float(draw.normal())) for image in pictures(draw)]
    library.calibrate(vit, id_data=data, output=folder / "model")
    return Case(folder / "model", pictures(draw), grey())


def words(folder: Path, draw: np.random.Generator) -> Case:
    table = sentences(3 * COUNT, 0).shuffle(seed=0)
    known = table.select(range(COUNT)).select_columns(["tokens"])  # a random tagger knows no tags
    library.calibrate(save_tagger(folder / "bert"), id_data=known, output=folder / "model")
    same, rest = ([" ".join(row) for row in table["tokens"][at * COUNT : (at + 1) * COUNT]] for at in (1, 2))
    return Case(folder / "model", same, [" ".join(draw.permutation(text.split())) for text in rest], "text")


def embeddings(folder: Path, draw: np.random.Generator) -> Case:
    def texts(words: list[str]) -> list[str]:
        return [" ".join(draw.choice(words, draw.integers(1, 5))) for _ in range(COUNT)]

    save_encoder(folder / "st")
    library.calibrate(folder / "st", id_data=data(texts(["a", "good", "bad"])), output=folder / "model")
    return Case(folder / "model", texts(["a", "good", "bad"]), texts(["film", "owl"]), "text")


OTHERS = [labels, numbers, words, embeddings]


@pytest.fixture(scope="module", params=[classes, *OTHERS], ids=lambda make: make.__name__)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    make: Callable[[Path, np.random.Generator], Case] = request.param
    return make(tmp_path_factory.mktemp(make.__name__), np.random.default_rng(7))


def data(samples: list[Any]) -> Any:
    """Samples as data: a list of texts would be one of files."""
    return datasets.Dataset.from_dict({"text": samples}) if isinstance(samples[0], str) else samples


def has_labels(case: Case) -> bool:
    return library.load(case.model).task.label_type is not None


def test_other_inputs_alarm_and_the_same_do_not(case: Case) -> None:
    quiet, loud = (library.monitor(case.model, data=data(samples)) for samples in (case.same, case.other))
    assert not quiet.alarm and quiet.findings.inputs == COUNT
    assert loud.alarm and loud.findings.layers and any(layer.moved for layer in loud.findings.layers)
    monitor, model = library.Monitor(case.model), library.load(case.model)
    for start in range(0, COUNT, 60):
        monitor.update(model.predict(case.same[start : start + 60]))
    assert monitor.findings().evidence == pytest.approx(quiet.findings.evidence)
    assert monitor.update(model.predict(case.other)) is True


def test_what_answers_lack_is_left_out(case: Case, tmp_path: Path) -> None:
    given = data(case.other)
    if case.modality == "image":  # which a table can only name where it is a file
        (given := tmp_path / "grey").mkdir()
        for at, image in enumerate(case.other):
            Image.fromarray(image).save(given / f"{at:03}.png")
    found = library.monitor(case.model, data=given, pick=2, picked=tmp_path / "look.csv", report=tmp_path / "page")
    plain, monitor, several = found.to_json(), library.Monitor(case.model), has_labels(case)
    monitor.update(library.load(case.model).predict(case.other))
    assert [name in plain for name in OF_CLASSES] == [several] * len(OF_CLASSES)
    assert ("confidence" in json.dumps(plain)) is ("predicted" in plain["picked"][0]) is several
    metrics = monitor.metrics()
    for name in ("confidence", "accuracy_estimate", "class_share"):
        assert (f"hydractl_{name}" in metrics) is several
    page = (tmp_path / "page" / "index.html").read_text()
    assert ("confidence" in page) is ("<h2>Classes</h2>" in page) is ("accuracy" in str(found)) is several
    assert page.count("<figure>") == 2 + several and page.count("Layers that moved") == 1
    header, *rows = csv.reader((tmp_path / "look.csv").open())
    assert header == [
        *(case.modality, "label"),
        *["predicted"] * several,
        "typicality",
        *["confidence"] * several,
        "why",
    ]
    assert len(rows) == 2 and all(len(row) == len(header) for row in rows)


def test_what_predict_wrote_says_the_same(case: Case, hydractl: Command, tmp_path: Path) -> None:
    expected = library.monitor(case.model, data=data(case.same)).to_json()
    found = library.predict(case.model, data=data(case.same))
    for name in ("a.jsonl", "a.parquet"):
        library.predict(case.model, data=data(case.same), output=tmp_path / name, workers=0)
    (tmp_path / "a.csv").write_text(found.to_csv())
    (tmp_path / "a.json").write_text(json.dumps(found.to_json(), indent=1))
    for name in ("a.csv", "a.json", "a.jsonl", "a.parquet"):
        assert library.monitor(case.model, tmp_path / name).to_json() == expected, name
    (tmp_path / "a.tsv").write_text("\n".join([*found.lines(), ""]))
    piped = library.monitor(case.model, tmp_path / "a.tsv").to_json()
    assert piped["evidence"] == expected["evidence"] and piped.keys() == expected.keys()
    shares = [[(one["name"], one["predicted"]) for one in found.get("classes", ())] for found in (piped, expected)]
    assert shares[0] == shares[1]
    state = tmp_path / "state.json"
    for name in ("a.csv", "a.json"):
        piped = hydractl("monitor", case.model, "-", "--state", state, stdin=(tmp_path / name).read_bytes(), code=0)
    again = library.monitor(case.model, state=state)
    assert again.findings.inputs == 2 * COUNT


def test_an_onnx_file_is_watched_as_its_source(case: Case, tmp_path: Path) -> None:
    library.export(case.model, output=tmp_path / "m.onnx")
    without = "import sys, hydractl; hydractl.Monitor(sys.argv[1]); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", without, tmp_path / "m.onnx"], check=True)
    for samples, alarm in ((case.same, False), (case.other, True)):
        found, expected = (library.monitor(one, data=data(samples)) for one in (tmp_path / "m.onnx", case.model))
        assert found.alarm is alarm and found.to_json().keys() == expected.to_json().keys()
        assert found.findings.evidence == pytest.approx(expected.findings.evidence, rel=0.05)
        assert len(found.findings.layers) == len(expected.findings.layers)


@pytest.mark.parametrize("case", OTHERS, indirect=True, ids=lambda make: make.__name__)
def test_classes_are_not_asked_of_it(case: Case, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("text,label\na,cat\n")
    with pytest.raises(OptionError, match="`labels`"):
        library.monitor(case.model, data=data(case.same), labels=tmp_path / "labels.csv")


def test_unreadable_rows_count_for_nothing(tmp_path: Path) -> None:
    for make, told in ((words, "unreadable"), (embeddings, "unreadable")):
        case = make(tmp_path / make.__name__, np.random.default_rng(0))
        (tmp_path / "texts.txt").write_text("\n".join([*case.same[:3], "", *case.same[3:6]]))
        found = library.predict(case.model, tmp_path / "texts.txt")
        assert any(told in line for line in found.lines())
        (tmp_path / "a.csv").write_text(found.to_csv())
        (tmp_path / "a.tsv").write_text("\n".join([*found.lines(), ""]))
        for name in ("texts.txt", "a.csv", "a.tsv"):
            assert library.monitor(case.model, tmp_path / name).findings.inputs == 6, name


def test_each_label_has_a_share_beside_that_of_the_calibration_samples(tmp_path: Path) -> None:
    case = labels(tmp_path, np.random.default_rng(7))
    found = library.monitor(case.model, data=data(case.same), full=True)
    tags = library.predict(case.model, data=data(case.same)).labels
    for one in found.findings.classes:
        assert one.predicted.value == np.mean([one.name in own for own in tags])
        assert one.calibrated is not None and abs(one.calibrated - one.predicted.value) < 0.2 and one.estimated is None
    assert sum(one.predicted.value for one in found.findings.classes) > 1
    assert found.findings.accuracy.keys() == {"mean confidence", "ATC"}
    assert "calibration" in str(found) and "by EM" not in str(found)
    with pytest.raises(DataError, match="row 1: has no msp"):
        (tmp_path / "x.csv").write_text("input,typicality,label\na,0.5,=salt\n")
        library.monitor(case.model, tmp_path / "x.csv")
    (tmp_path / "y.csv").write_text('input,typicality,msp,label\na,0.5,0.5,"=salt, cow"\n')
    with pytest.raises(DataError, match="row 1: .*label 'cow'"):
        library.monitor(case.model, tmp_path / "y.csv")
    library.Monitor(case.model).save(tmp_path / "state.json")
    with pytest.raises(ArtifactError, match="another calibration"):
        model = as_checkpoint(case.model)
        other_thresholds = replace(model.calibration, thresholds=(0.1, 0.5, 0.5))
        library.Monitor(replace(model, calibration=other_thresholds), state=tmp_path / "state.json")
    other = embeddings(tmp_path / "other", np.random.default_rng(0))
    predictions = library.load(other.model).predict(other.same)
    for wrong in (OneAnswer(0.5, 0.5, (TAGS[0], "cow")), OneAnswer(0.5, 0.5, TAGS[0]), *predictions.each()):
        with pytest.raises(OptionError, match="the model has no class"):
            library.Monitor(case.model).add([wrong])
