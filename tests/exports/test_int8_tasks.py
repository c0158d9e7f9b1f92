"""Graphs of eight bits of models that answer otherwise than with one class: all that was fitted is fitted again."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from tests.cli.conftest import LABELS, save_bert, save_vit
from tests.references import uneven_members
from tests.tasks.corpus import save_tagger, sentences
from tests.tasks.encoders import save_encoder
from tests.tasks.test_regression import CROSS_ENCODER, with_config

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
    kept: Callable[[Checkpoint], Any] | None = None  # what the task has besides typicality
    reading: dict[str, Any] = field(default_factory=dict)


def warmed(folder: Path, table: datasets.Dataset, metrics: tuple[str, ...], **more: Any) -> Case:
    parts = [table.select(range(at, at + FITTED)) for at in (0, FITTED)]
    fresh = table.select(range(2 * FITTED, 2 * FITTED + MEASURED))
    options, reading = more.pop("options", {}), more.get("reading", {})
    hydra = fuse(uneven_members(read_checkpoint(folder)))
    warm = library.calibrate(hydra, id_data=parts[0], accept="90%", **options, **reading).checkpoint
    return Case(warm, parts[1], fresh, metrics, **more)


def images(draw: np.random.Generator, name: str, values: list[Any], kind: Any) -> datasets.Dataset:
    pixels = [draw.integers(0, 256, (8, 8, 3), dtype=np.uint8) for _ in values]
    features = datasets.Features({"image": datasets.Image(), name: kind})
    return datasets.Dataset.from_dict({"image": pixels, name: values}, features=features)


def unlike(draw: np.random.Generator) -> list[str]:
    """Texts, no two alike."""
    rows = [" ".join(draw.choice(["a", "good", "bad", "film", "owl"], 9)) for _ in range(4 * FITTED + MEASURED)]
    return list(dict.fromkeys(rows))[: 2 * FITTED + MEASURED]


def labels(folder: Path, draw: np.random.Generator) -> Case:
    vit = save_vit(folder / "vit", problem_type="multi_label_classification", initializer_range=0.3)
    tags = [[LABELS[at] for at in np.flatnonzero(draw.integers(0, 2, 3))] for _ in range(2 * FITTED + MEASURED)]
    table = images(draw, "tags", tags, datasets.List(datasets.Value("string")))
    answers = library.predict(vit, table.select_columns(["image"])).labels
    tags[::2] = [list(answer) for answer in answers[::2]]  # so that it knows something
    table = table.remove_columns("tags").add_column("tags", tags, feature=table.features["tags"])
    named = {"label_column": "tags"}
    promise: dict[str, Any] = {
        "options": {"recall": "80%", "by_class": True},
        "kept": lambda one: (one.calibration.thresholds, one.calibration.recall),
    }
    return warmed(vit, table, ("macro_f1", "label_auroc", "nll"), reading=named, **promise)


def numbers(folder: Path, draw: np.random.Generator) -> Case:
    vit = save_vit(folder / "vit", id2label={0: "age"}, label2id={"age": 0}, initializer_range=0.3)
    table = images(draw, "age", draw.normal(size=2 * FITTED + MEASURED).tolist(), datasets.Value("float64"))
    return warmed(
        vit,
        table,
        ("mse", "coverage", "width"),
        kept=lambda one: one.calibration.intervals,
        reading={"label_column": "age"},
        options={"interval": "80%"},
    )


def whether(folder: Path, draw: np.random.Generator) -> Case:
    bert = with_config(save_bert(folder / "bert"), **CROSS_ENCODER, initializer_range=0.3)
    texts = unlike(draw)
    table = datasets.Dataset.from_dict({"text": texts, "relevant": draw.integers(0, 2, len(texts)).tolist()})
    named = {"label_column": "relevant"}
    return warmed(bert, table, ("label_auroc", "brier"), kept=lambda one: one.calibration.temperature, reading=named)


def words(folder: Path, draw: np.random.Generator) -> Case:
    table = sentences(2 * FITTED + MEASURED + 60, 0).shuffle(seed=0)
    settings = {"lr": 3e-3, "batch": 8}
    tail = table.select(range(2 * FITTED + MEASURED, len(table)))
    library.finetune(
        [save_tagger(folder / "bert")], output=folder / "tuned", train_data=tail, steps=40, settings=settings
    )
    promise = {
        "options": {"accuracy": "60%", "recall": "80%"},
        "kept": lambda one: (one.calibration.temperature, one.calibration.fit.confidence, one.calibration.recall),
    }
    return warmed(folder / "tuned", table, ("accuracy", "span_f1", "span_ece"), **promise)


def embeddings(folder: Path, draw: np.random.Generator) -> Case:
    save_encoder(folder / "st")
    return warmed(folder / "st", datasets.Dataset.from_dict({"text": unlike(draw)}), ("neighbours",))


@pytest.fixture(scope="module", params=[labels, numbers, whether, words, embeddings], ids=lambda make: make.__name__)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    make: Callable[[Path, np.random.Generator], Case] = request.param
    return make(tmp_path_factory.mktemp(make.__name__), np.random.default_rng(3))


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
    if case.kept is not None:
        assert case.kept(new) is not None and case.kept(new) != case.kept(old)
    for part in ("intervals", "thresholds"):
        assert (getattr(new.calibration, part) is None) == (getattr(old.calibration, part) is None)
    assert new.calibration.promises == old.calibration.promises
    assert old.calibration.intervals is None or new.calibration.intervals.share == old.calibration.intervals.share
    assert limit == {} or done.report.models["int8"].id.accuracy is not None
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
    again = library.calibrate(old, id_data=case.fitted, accept="90%", **case.reading).checkpoint
    typical = library.predict(again, data=case.fresh).typicality
    assert 0 < np.abs(typical - theirs.typicality).mean() < 0.05
    assert (new.calibration.temperature or 1.0) == pytest.approx(again.calibration.temperature or 1.0, rel=0.1)
    assert library.monitor(tmp_path / "m.onnx", data=case.fresh).findings.inputs == MEASURED


def test_a_network_that_was_not_calibrated_is_fitted_first(tmp_path: Path) -> None:
    case = numbers(tmp_path, np.random.default_rng(0))
    bare = replace(case.warm, calibration=replace(case.warm.calibration, ood=None, intervals=None), provenance={})
    export(replace(case, warm=bare), tmp_path / "m.onnx")
    new = open_onnx(tmp_path / "m.onnx").checkpoint
    assert (
        new.calibration.ood is not None
        and new.calibration.fit.accept == 0.95
        and new.calibration.intervals.share == 0.9
    )


def test_what_is_kept_out_to_measure_is_not_among_the_rest(tmp_path: Path) -> None:
    texts = unlike(np.random.default_rng(0))[:100]
    table = datasets.Dataset.from_dict({"text": [*texts, *texts[:20]]})
    done = library.export(save_encoder(tmp_path / "st"), output=tmp_path / "m.onnx", int8=True, id_data=table)
    assert done.report.models["float"].id.neighbours == 1 and 0 < done.report.models["int8"].id.neighbours < 1
    assert 10 < done.report.data.id.samples < 24


def test_a_limit_of_accuracy_is_refused_where_answers_are_not_right_or_wrong(tmp_path: Path) -> None:
    for make in (numbers, embeddings):
        case = make(tmp_path / make.__name__, np.random.default_rng(0))
        wanted = rf"`max_accuracy_drop` is for answers .* {case.warm.spec.task}: leave it out"
        with pytest.raises(OptionError, match=wanted):
            export(case, tmp_path / "m.onnx", max_accuracy_drop=1)
        assert not list(tmp_path.glob("m.onnx*"))
