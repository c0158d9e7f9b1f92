"""Inputs of models of every task: what is watched of them, by whatever way they come, and what is left out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pytest

import hydractl as library
from hydractl.errors import DataError, OptionError
from hydractl.monitoring.findings import OF_CLASSES
from hydractl.tasks.task import OneAnswer
from tests.cli.conftest import Command, named, save_vit
from tests.factories import CLASSES, EMBEDDINGS, NUMBERS, SEVERAL, SEVERAL_LABELS, TAGGED, Kind, odd_inputs, some_labels

TAGS = ("salt, pepper", "=salt", 'say "salt"')  # which lists of labels and CSV must tell apart
COUNT = 300  # calibration samples, and those of each stream


class Case(NamedTuple):
    """A calibrated file, inputs like those it knows, and others."""

    model: Path
    same: list[Any]
    other: list[Any]


def make(kind: Kind, folder: Path) -> Case:
    draw = np.random.default_rng(7)
    table = kind.labelled(kind.save(folder / "network"), draw, COUNT)
    library.calibrate(folder / "network", id_data=table, output=folder / "model", **kind.reading)
    name = table.column_names[0]
    rows = kind.inputs(draw, COUNT)[name]  # images or texts, or words to join
    same = [" ".join(row) if isinstance(row, list) else row for row in rows]
    return Case(folder / "model", same, odd_inputs(name, COUNT))


LISTED = replace(
    SEVERAL,
    save=lambda folder: save_vit(folder, initializer_range=0.3, **SEVERAL_LABELS, **named(*TAGS)),
    labels=lambda draw, table: some_labels(draw, table, TAGS),
)
WATCHED = [CLASSES, LISTED, NUMBERS, TAGGED, EMBEDDINGS]


@pytest.fixture(scope="module", params=WATCHED, ids=lambda kind: kind.name)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make(request.param, tmp_path_factory.mktemp("watched"))


def data(samples: list[Any]) -> Any:
    """Samples as data: a list of texts would be one of files."""
    return datasets.Dataset.from_dict({"text": samples}) if isinstance(samples[0], str) else samples


def test_what_answers_lack_is_left_out(case: Case, tmp_path: Path) -> None:
    found = library.monitor(case.model, data=data(case.other), report=tmp_path / "page")
    plain, monitor, model = found.to_json(), library.Monitor(case.model), library.load(case.model)
    several = model.task.label_type is not None
    monitor.update(model.predict(case.other))
    assert [name in plain for name in OF_CLASSES] == [several] * len(OF_CLASSES)
    assert ("confidence" in json.dumps(plain)) is several
    metrics = monitor.metrics()
    for name in ("confidence", "accuracy_estimate", "class_share"):
        assert (f"hydractl_{name}" in metrics) is several
    page = (tmp_path / "page" / "index.html").read_text()
    assert ("confidence" in page) is ("<h2>Classes</h2>" in page) is ("accuracy" in str(found)) is several
    assert page.count("<figure>") == 2 + several and page.count("Layers that moved") == 1


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


@pytest.mark.parametrize("case", WATCHED[1:], indirect=True, ids=lambda kind: kind.name)
def test_classes_are_not_asked_of_it(case: Case, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("text,label\na,cat\n")
    with pytest.raises(OptionError, match="`labels`"):
        library.monitor(case.model, data=data(case.same), labels=tmp_path / "labels.csv")


def test_unreadable_rows_count_for_nothing(hydractl: Command, tmp_path: Path) -> None:
    for kind in (TAGGED, EMBEDDINGS):
        case = make(kind, tmp_path / kind.name)
        (tmp_path / "texts.txt").write_text("\n".join([*case.same[:3], "", *case.same[3:6]]))
        found = library.predict(case.model, tmp_path / "texts.txt")
        assert any("unreadable" in line for line in found.lines())
        (tmp_path / "a.csv").write_text(found.to_csv())
        (tmp_path / "a.tsv").write_text("\n".join([*found.lines(), ""]))
        for name in ("texts.txt", "a.csv", "a.tsv"):
            assert library.monitor(case.model, tmp_path / name).findings.inputs == 6, name
        texts = (tmp_path / "texts.txt").read_bytes()
        assert hydractl("monitor", case.model, "-", stdin=texts, code=0).out.startswith("6 inputs: ")


def test_each_label_has_a_share_beside_that_of_the_calibration_samples(tmp_path: Path) -> None:
    case = make(LISTED, tmp_path)
    found = library.monitor(case.model, data=data(case.same), full=True)
    tags = library.predict(case.model, data=data(case.same)).labels
    for one in found.findings.classes:
        assert one.predicted.value == np.mean([one.name in own for own in tags])
        assert one.calibrated is not None and abs(one.calibrated - one.predicted.value) < 0.2 and one.estimated is None
    assert sum(one.predicted.value for one in found.findings.classes) > 1
    assert found.findings.accuracy.keys() == {"mean confidence", "ATC"}
    assert "calibration" in str(found) and "by EM" not in str(found)
    (tmp_path / "y.csv").write_text('input,typicality,msp,label\na,0.5,0.5,"=salt, cow"\n')
    with pytest.raises(DataError, match="row 1: .*label 'cow'"):
        library.monitor(case.model, tmp_path / "y.csv")
    other = make(EMBEDDINGS, tmp_path / "other")
    predictions = library.load(other.model).predict(other.same)
    for wrong in (OneAnswer(0.5, 0.5, (TAGS[0], "cow")), OneAnswer(0.5, 0.5, TAGS[0]), *predictions.each()):
        with pytest.raises(OptionError, match="the model has no class"):
            library.Monitor(case.model).add([wrong])
