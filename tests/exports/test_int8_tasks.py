"""Graphs of eight bits of models of every task: all that was fitted is fitted again to their answers."""

import json
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

import hydractl as library
from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError
from hydractl.families.load import read_checkpoint
from hydractl.surgery.fusion import fuse
from hydractl.systems.onnx_file import open_onnx
from tests.cli.conftest import save_bert
from tests.factories import CLASSES, CROSS_ENCODER, EMBEDDINGS, NUMBERS, SEVERAL, Kind, save_tagger, sentences, texts
from tests.references import uneven_members

FITTED, MEASURED = 160, 120  # samples to fit on, and to measure on

VNNI = "vnni" in Path("/proc/cpuinfo").read_text()
EXACT = pytest.mark.skipif(not VNNI, reason="without VNNI sums of eight-bit products saturate at 16 bits")


@dataclass(frozen=True)
class Case:
    """A calibrated Hydra, data to fit its graph on and to measure both on, and what is measured and fitted."""

    warm: Checkpoint
    fitted: datasets.Dataset
    fresh: datasets.Dataset
    metrics: tuple[str, ...]
    kept: tuple[str, ...] = ()  # what the task fits besides typicality
    reading: dict[str, Any] = field(default_factory=dict)

    def fits(self, model: Checkpoint) -> list[Any]:
        return [attrgetter(name)(model.calibration) for name in self.kept]


def warmed(folder: Path, table: datasets.Dataset, metrics: tuple[str, ...], **more: Any) -> Case:
    parts = [table.select(range(at, at + FITTED)) for at in (0, FITTED)]
    fresh = table.select(range(2 * FITTED, 2 * FITTED + MEASURED))
    options, reading = more.pop("options", {}), more.get("reading", {})
    hydra = fuse(uneven_members(read_checkpoint(folder)))
    warm = library.calibrate(hydra, id_data=parts[0], accept="90%", **options, **reading).checkpoint
    return Case(warm, parts[1], fresh, metrics, **more)


WHETHER = replace(
    NUMBERS,
    save=lambda folder: save_bert(folder, initializer_range=0.3, **CROSS_ENCODER),
    labels=lambda draw, table: draw.integers(0, 2, len(table)).tolist(),
    answered=lambda answers: (answers.values[:, 0] >= 0.5).astype(int).tolist(),
)
BY_LABEL = {"recall": "80%", "by_class": True}
#: By name: the kind, what is measured of it, what is promised, and what is fitted.
OF_KINDS: dict[str, tuple[Kind, tuple[str, ...], dict[str, Any], tuple[str, ...]]] = {
    "classes": (CLASSES, ("accuracy", "nll"), {"sets": "80%", "ood_score": "mahalanobis"}, ("temperature", "sets")),
    "labels": (SEVERAL, ("macro_f1", "label_auroc", "nll"), BY_LABEL, ("thresholds", "recall")),
    "numbers": (NUMBERS, ("mse", "coverage", "width"), {"interval": "80%"}, ("intervals",)),
    "whether": (WHETHER, ("label_auroc", "brier"), {}, ("temperature",)),
    "embeddings": (EMBEDDINGS, ("neighbours",), {}, ()),
}


def make(name: str, folder: Path) -> Case:
    if name == "words":
        return words(folder)
    kind, metrics, options, kept = OF_KINDS[name]
    table = kind.labelled(kind.save(folder / "network"), np.random.default_rng(3), 2 * FITTED + MEASURED)
    return warmed(folder / "network", table, metrics, reading=kind.reading, options=options, kept=kept)


def words(folder: Path) -> Case:
    table = sentences(2 * FITTED + MEASURED + 60, 0).shuffle(seed=0)
    tail = table.select(range(2 * FITTED + MEASURED, len(table)))
    learning = {"train_data": tail, "steps": 40, "settings": {"lr": 3e-3, "batch": 8}}
    library.finetune([save_tagger(folder / "bert")], output=folder / "tuned", **learning)
    promise = {"options": {"accuracy": "60%", "recall": "80%"}, "kept": ("temperature", "fit.confidence", "recall")}
    return warmed(folder / "tuned", table, ("accuracy", "span_f1", "span_ece"), **promise)


@pytest.fixture(scope="module", params=[*OF_KINDS, "words"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make(request.param, tmp_path_factory.mktemp("int8"))


def export(case: Case, output: Path, **given: Any) -> Any:
    named = {"int8": True, "id_data": case.fitted, "eval_data": case.fresh, **case.reading}
    return library.export(case.warm, output=output, **named, **given)


def plain(found: Any) -> list[dict[str, Any]]:
    return json.loads(json.dumps(found.to_json()))["predictions"]


@EXACT
def test_all_that_was_fitted_is_fitted_again_and_measured(case: Case, tmp_path: Path) -> None:
    limit = {"max_accuracy_drop": 100} if {"accuracy", "label_auroc"} & set(case.metrics) else {}
    done = export(case, tmp_path / "m.onnx", batch_size=32, **limit)
    file, old = open_onnx(tmp_path / "m.onnx"), case.warm
    new = file.checkpoint
    assert file.precision == "int8" and len(file.quantiles) == FITTED == new.calibration.fit.samples
    assert not case.kept or (None not in case.fits(new) and case.fits(new) != case.fits(old))
    assert new.calibration.fit.score == old.calibration.fit.score
    for part in ("sets", "intervals", "thresholds"):
        assert (getattr(new.calibration, part) is None) == (getattr(old.calibration, part) is None)
    assert new.calibration.promises == old.calibration.promises
    assert old.calibration.intervals is None or new.calibration.intervals.share == old.calibration.intervals.share
    assert limit == {} or done.report.models["int8"].id.accuracy is not None
    assert [row.name for row in done.rows] == ["float", "int8"]
    assert done.rows[1].weight.size == (tmp_path / "m.onnx").stat().st_size
    assert {"float", "int8"} <= {line.split(" ")[0].rstrip(":") for line in done.lines()}
    before, after = (done.report.models[name] for name in ("float", "int8"))
    for name in case.metrics:
        assert getattr(before.id, name) is not None and getattr(after.id, name) is not None
    assert after.typicality.accept == 0.9 and 0.8 < after.typicality.coverage < 0.99
    ours, theirs = (library.predict(one, data=case.fresh, batch_size=32) for one in (old, tmp_path / "m.onnx"))
    assert type(ours) is type(theirs) and ours.columns == theirs.columns
    for one, other in zip(plain(ours), plain(theirs), strict=True):
        assert one.keys() == other.keys()
    assert 0 < np.nanmax(np.abs(ours.member_logits - theirs.member_logits)) < 0.5
    # The float network, fitted to the same samples, says nearly the same.
    fit = {"accept": "90%", "ood_score": old.calibration.fit.score}
    again = library.calibrate(old, id_data=case.fitted, **fit, **case.reading).checkpoint
    typical = library.predict(again, data=case.fresh).typicality
    assert 0 < np.abs(typical - theirs.typicality).mean() < 0.05
    assert (new.calibration.temperature or 1.0) == pytest.approx(again.calibration.temperature or 1.0, rel=0.1)
    assert library.monitor(tmp_path / "m.onnx", data=case.fresh).findings.inputs == MEASURED


def test_a_network_that_was_not_calibrated_is_fitted_first(tmp_path: Path) -> None:
    case = make("numbers", tmp_path)
    bare = replace(case.warm, calibration=replace(case.warm.calibration, ood=None, intervals=None), provenance={})
    export(replace(case, warm=bare), tmp_path / "m.onnx")
    new = open_onnx(tmp_path / "m.onnx").checkpoint.calibration
    assert new.ood is not None and new.fit.accept == 0.95 and new.intervals.share == 0.9


def test_what_is_kept_out_to_measure_is_not_among_the_rest(tmp_path: Path) -> None:
    rows = texts(np.random.default_rng(0), 100)["text"]
    table = datasets.Dataset.from_dict({"text": [*rows, *rows[:20]]})
    done = library.export(EMBEDDINGS.save(tmp_path / "st"), output=tmp_path / "m.onnx", int8=True, id_data=table)
    assert done.report.models["float"].id.neighbours == 1 and 0 < done.report.models["int8"].id.neighbours < 1
    assert 10 < done.report.data.id.samples < 24


def test_a_limit_of_accuracy_is_refused_where_answers_are_not_right_or_wrong(tmp_path: Path) -> None:
    for name in ("numbers", "embeddings"):
        case = make(name, tmp_path / name)
        wanted = rf"`max_accuracy_drop` needs answers .* {case.warm.spec.task}: leave it out"
        with pytest.raises(OptionError, match=wanted):
            export(case, tmp_path / "m.onnx", max_accuracy_drop=1)
        assert not list(tmp_path.glob("m.onnx*"))
