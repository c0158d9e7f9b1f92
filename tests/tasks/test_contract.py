"""An answer of every task is the same when it is predicted, evaluated, exported, saved and read back."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import datasets
import numpy as np
import pytest

import hydractl
from hydractl.tasks.task import OneAnswer
from tests.cli.conftest import LABELS, WORDS, save_bert, save_vit
from tests.tasks.corpus import LABELS as TAGS
from tests.tasks.corpus import save_tagger, sentences
from tests.tasks.encoders import save_encoder
from tests.tasks.test_regression import REGRESSION, with_config

ROWS = 48


class Case(NamedTuple):
    """A network, a table of its samples, and the labels as its task measures answers by them."""

    folder: Path
    table: datasets.Dataset
    truth: np.ndarray[Any, Any] | None
    label: Callable[[datasets.Dataset, np.ndarray[Any, Any]], datasets.Dataset] = lambda table, _truth: table
    columns: Mapping[str, str] = MappingProxyType({})
    promises: Mapping[str, str] = MappingProxyType({})


def pictures() -> datasets.Dataset:
    pixels = np.random.default_rng(1).integers(0, 256, (ROWS, 8, 8, 3), dtype=np.uint8)
    return datasets.Dataset.from_dict({"image": list(pixels)}, features=datasets.Features({"image": datasets.Image()}))


def texts() -> datasets.Dataset:
    draw = np.random.default_rng(0)
    rows = [" ".join(draw.choice(WORDS[5:], 1 + at % 6)) + f" {WORDS[5 + at % 5]}" * (at // 8) for at in range(ROWS)]
    return datasets.Dataset.from_dict({"text": rows})


def classes(folder: Path) -> Case:
    save_vit(folder / "network")
    return Case(folder, pictures(), np.arange(ROWS) % 3, lambda table, truth: table.add_column(
        "label", [LABELS[at] for at in truth]
    ))  # fmt: skip


def several(folder: Path) -> Case:
    save_vit(folder / "network", problem_type="multi_label_classification")
    truth = np.random.default_rng(2).integers(0, 2, (ROWS, 3))
    return Case(folder, pictures(), truth, lambda table, rows: table.add_column(
        "tags", [[LABELS[at] for at in np.flatnonzero(row)] for row in rows]
    ), {"label_column": "tags"}, {"recall": "80%"})  # fmt: skip


def numbers(folder: Path) -> Case:
    with_config(save_bert(folder / "network"), **REGRESSION)
    truth = np.random.default_rng(3).normal(size=(ROWS, 1))
    return Case(folder, texts(), truth, lambda table, rows: table.add_column(
        "score", rows[:, 0].tolist()
    ), {"label_column": "score"})  # fmt: skip


def words(folder: Path) -> Case:
    save_tagger(folder / "network")
    table = sentences(ROWS)
    truth = np.array([TAGS.index(tag) for tags in table["tags"] for tag in tags])

    def label(unlabelled: datasets.Dataset, tags: np.ndarray[Any, Any]) -> datasets.Dataset:
        ends = np.cumsum([len(row) for row in unlabelled["tokens"]])
        rows = np.split([TAGS[tag] for tag in tags], ends[:-1])
        return unlabelled.add_column("tags", [row.tolist() for row in rows])

    return Case(folder, table.remove_columns("tags"), truth, label, promises={"recall": "80%"})


def embeddings(folder: Path) -> Case:
    save_encoder(folder / "network")
    return Case(folder, texts(), None)


TASKS: tuple[Callable[[Path], Case], ...] = (classes, several, numbers, words, embeddings)
#: What people read of an answer, beside the numbers that all answers have.
NUMBERS = ("probabilities", "msp", "entropy", "values", "low", "high", "embeddings", "ood_score", "typicality")


@pytest.fixture(scope="module", params=TASKS, ids=lambda make: make.__name__)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A task's calibrated model and its graph; the network is right about half of the samples."""
    made: Case = request.param(tmp_path_factory.mktemp("contract"))
    made.table.to_parquet(made.folder / "data.parquet")
    if made.truth is not None and made.truth.dtype.kind == "i":
        p = predicted(made, "network").answers.probabilities
        answers = p >= 0.5 if made.truth.ndim == 2 else p.argmax(-1)
        made.truth[::2] = answers[::2]
    if made.truth is not None:
        made.label(made.table, made.truth).to_parquet(made.folder / "data.parquet")
    data, folder = f"{made.folder}/data.parquet", made.folder
    hydractl.calibrate(folder / "network", id_data=data, output=folder / "model", **made.columns, **made.promises)
    hydractl.export(folder / "model", output=folder / "model.onnx")
    return made


def predicted(case: Case, name: str) -> Any:
    return hydractl.predict(case.folder / name, f"{case.folder}/data.parquet")


def measured(case: Case, name: str, **options: Any) -> dict[str, Any]:
    options |= {"bootstrap": 0, "allow_leak": True, **case.columns}
    models = hydractl.evaluate({"a": case.folder / name}, id_data=f"{case.folder}/data.parquet", **options).models
    entry: dict[str, Any] = models["a"]["id"]
    return entry


def test_evaluate_measures_what_predict_answers(case: Case) -> None:
    answers = predicted(case, "model").answers
    table = answers.task.table(replace(answers, truth=None if case.truth is None else answers.task.truth(case.truth)))
    entry = measured(case, "model")
    expected = {} if case.truth is None else answers.task.metrics(table)
    for name, value in expected.items():
        if entry.get(name) is not None:
            assert entry[name] == pytest.approx(value, rel=1e-5), name
    assert case.truth is None or len({*expected} & {*entry}) > 2


def labels(answers: Any) -> Any:
    """The labels of answers; of spans, those offered too, their kind, text and place without confidence."""
    given = answers.columns.get("labels")
    if answers.places is None:
        return given
    return [[span[:4] for span in row] for row in [*given, *answers.offered]]


def test_an_exported_graph_gives_the_same_answers(case: Case) -> None:
    ours, theirs = predicted(case, "model").answers, predicted(case, "model.onnx").answers
    assert labels(ours) == labels(theirs) and len(ours) == len(theirs) == ROWS
    for name in NUMBERS:
        value = getattr(ours, name, None)
        if value is not None:
            np.testing.assert_allclose(getattr(theirs, name), value, rtol=0, atol=1e-3, err_msg=name)
    if case.truth is not None:
        graph, network = measured(case, "model.onnx"), measured(case, "model")
        if "coverage" in network:  # the sample that the width of intervals was read off lies on their edge
            assert graph.pop("coverage") == pytest.approx(network.pop("coverage"), abs=1.5 / ROWS)
        assert graph == pytest.approx(network, rel=1e-3, nan_ok=True)


def test_a_monitor_reads_back_what_predict_writes(case: Case) -> None:
    predictions = predicted(case, "model")
    task, names = predictions.answers.task, predictions.classes
    for row, answer in zip(predictions, predictions.each(), strict=True):
        read = task.read_row(row, names)._replace(typicality=row["typicality"])
        ours, theirs = (task.watch(each._replace(profile=None), names) for each in (answer, read))
        assert same(ours, theirs)


def same(ours: OneAnswer, theirs: OneAnswer) -> bool:
    numbers_are = ours.shares == pytest.approx(theirs.shares)
    return numbers_are and ours.labels == theirs.labels


@pytest.mark.parametrize("case", [classes], indirect=True)
def test_saved_predictions_of_single_classes_give_the_same_numbers(case: Case, tmp_path: Path) -> None:
    network = measured(case, "model", save_logits=tmp_path / "saved")
    saved = hydractl.evaluate(f"predictions:{tmp_path}/saved/a", bootstrap=0).models
    assert [model["id"] for model in saved.values()] == [network]
