"""Sets with a promise travel in the file: whatever reads it answers with them, and an evaluation measures them."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import transformers

import hydractl as library
from hydractl.auto import ImagePipeline
from hydractl.errors import OptionError
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import LABELS, Command, save_clip, save_vit
from tests.exports.test_int8 import labelled, random_images


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that tells its classes well apart."""
    return save_vit(tmp_path_factory.mktemp("owner") / "vit", initializer_range=0.5)


@pytest.fixture(scope="module", params=[False, True], ids=["for all", "by class"])
def promised(request: pytest.FixtureRequest, owner: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with sets and sure answers; a label in four is chance."""
    images = random_images(200, 7)
    known = [(image, LABELS[i % 3] if i % 4 == 0 else name) for i, (image, name) in enumerate(labelled(owner, images))]
    file = tmp_path_factory.mktemp("promised") / "m.safetensors"
    library.calibrate(owner, id_data=known, sets="85%", accuracy="10%", by_class=request.param, output=file)
    return file


def expected_sets(file: Path, rows: Any) -> list[list[str]]:
    """The classes whose probability is high enough, and the predicted one, the most probable first."""
    sets = read_checkpoint(file).calibration.sets
    assert sets is not None
    least = dict(zip(LABELS, np.float32(sets.least * (3 // len(sets.least))), strict=True))
    found = []
    for row in rows:
        order = sorted(LABELS, key=lambda name, p=row["probabilities"]: -p[name])
        found.append([name for name in order if row["probabilities"][name] >= least[name] or name == order[0]])
    return found


def test_predictions_name_the_set_in_every_form(
    hydractl: Command, promised: Path, images: Path, tmp_path: Path
) -> None:
    rows = json.loads(hydractl("predict", promised, images, "--json").out)["predictions"]
    wanted = expected_sets(promised, rows)
    assert [row["set"] for row in rows] == wanted and len({len(one) for one in wanted}) > 1
    plain = hydractl("predict", promised, images)
    head, *lines = (line.split("\t") for line in plain.out.splitlines())
    assert [line[head.index("set")] for line in lines] == [", ".join(one) for one in wanted]
    size = np.mean([len(one) for one in wanted])
    assert f"{size:.2f} classes a set (holds the right one in 85 % of ID data)" in plain.err
    for form in ("csv", "jsonl", "parquet"):
        hydractl("predict", promised, images, "-o", tmp_path / f"p.{form}", code=0)
    table = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert [row["set"] for row in table] == [", ".join(one) for one in wanted]
    assert [json.loads(line)["set"] for line in (tmp_path / "p.jsonl").open()] == wanted
    assert pq.read_table(tmp_path / "p.parquet")["set"].to_pylist() == wanted
    found = library.load(promised).predict([str(row["input"]) for row in rows])
    assert [{LABELS[at] for at in np.flatnonzero(one)} for one in found.sets] == [set(one) for one in wanted]


def test_sure_answers_are_marked_by_the_class_that_is_answered(promised: Path, images: Path) -> None:
    fit, found = read_checkpoint(promised).calibration.fit, library.predict(promised, images)
    least = np.float32(fit.confidences or [fit.confidence] * 3)
    assert (fit.confidence is None) == (fit.confidences is not None)
    assert found.sure.tolist() == (found.msp >= least[found.probabilities.argmax(-1)]).tolist()
    assert "by class" in str(library.inspect(promised)) or fit.confidences is None


def test_an_evaluation_measures_them(hydractl: Command, promised: Path, images: Path) -> None:
    rows = json.loads(hydractl("predict", promised, images, "--json").out)["predictions"]
    held = [Path(row["input"]).parent.name in row["set"] for row in rows]
    found = library.evaluate(promised, id_data=images, bootstrap=0).models["m"]["conformal"]
    assert found["promised"] == 0.85 and found["coverage"] == pytest.approx(np.mean(held))
    assert found["mean_size"] == pytest.approx(np.mean([len(row["set"]) for row in rows]))
    assert set(found["by_class"]) == set(LABELS)
    assert found["worst_class"] == min(one["coverage"] for one in found["by_class"].values())
    shown = hydractl("evaluate", promised, "--id-data", images, "--bootstrap=0", "--full").out
    assert "set size" in shown and "worst class %" in shown
    sure = [row for row in rows if row["sure"]]
    right = np.mean([Path(row["input"]).parent.name == row["label"] for row in sure])
    own = library.evaluate(promised, id_data=images, bootstrap=0).models["m"]["sure"]
    assert own == {"accuracy": 0.1, "share": pytest.approx(len(sure) / len(rows)), "right": pytest.approx(right)}
    assert f"m is sure of {100 * own['share']:.1f} % of ID, {100 * right:.1f} % of them right" in shown
    assert library.evaluate(promised, id_data=images, bootstrap=0, ood_score="energy").models["m"]["sure"] == own
    # Another temperature makes other probabilities, of which nothing was promised.
    for temperature, kept in ((2.0, set()), (library.load(promised).temperature, {"conformal", "sure"})):
        report = library.evaluate(promised, id_data=images, bootstrap=0, temperature=temperature)
        assert {"conformal", "sure"} & report.models["m"].keys() == kept


def test_an_evaluation_calls_sure_what_predictions_do(owner: Path) -> None:
    known = labelled(owner, random_images(200, 7))
    for swapped in range(4, 12):  # of whose calibration samples one has just the confidence that makes it sure
        data = [(image, LABELS[0] if at % swapped == 0 else name) for at, (image, name) in enumerate(known)]
        made = library.calibrate(owner, id_data=data, accuracy="60%")
        sure = library.load(made).predict([image for image, _ in data]).sure
        found = library.evaluate(made, id_data=data, bootstrap=0, allow_leak=True).report
        assert next(iter(found.models.values())).sure.share == float(sure.mean()), swapped


def test_a_folder_of_transformers_returns_them(promised: Path, images: Path, tmp_path: Path) -> None:
    files = sorted(map(str, images.rglob("*.png")))[:6]
    expected = library.load(promised).predict(files)
    library.export(promised, output=tmp_path / "hf", as_hydra=True)
    pipe = transformers.pipeline("image-classification", str(tmp_path / "hf"), pipeline_class=ImagePipeline)
    for answers, mask, p in zip(pipe(files), expected.sets, expected.probabilities, strict=True):
        order = [LABELS[at] for at in (-p).argsort(kind="stable").tolist() if mask[at]]
        assert answers[0]["set"] == answers[-1]["set"] == order
    pixels = pipe.image_processor([str(file) for file in files], return_tensors="pt")["pixel_values"]
    assert pipe.model(pixel_values=pixels).sets.shape == (6, 3)
    assert "`sets`" in (tmp_path / "hf" / "README.md").read_text()


def test_sets_are_not_promised_where_classes_may_change(held_out: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="`sets`"):
        library.calibrate(save_clip(tmp_path / "clip"), id_data=held_out, sets="50%")
