"""What every task promises: predicted, evaluated, exported, saved and read back, an answer is the same."""

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

    network: Path
    table: datasets.Dataset
    truth: np.ndarray[Any, Any] | None
    columns: Mapping[str, str] = MappingProxyType({})


def texts() -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(WORDS[5:], 1 + at % 6)) + f" {WORDS[5 + at % 5]}" * (at // 8) for at in range(ROWS)]


def pictures() -> Any:
    return np.random.default_rng(1).integers(0, 256, (ROWS, 8, 8, 3), dtype=np.uint8)


def classes(folder: Path) -> Case:
    truth = np.arange(ROWS) % 3
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(LABELS))})
    table = datasets.Dataset.from_dict({"image": list(pictures()), "label": truth.tolist()}, features=features)
    return Case(save_vit(folder), table, truth)


def several(folder: Path) -> Case:
    truth = np.random.default_rng(2).integers(0, 2, (ROWS, 3))
    features = datasets.Features({"image": datasets.Image(), "tags": datasets.List(datasets.Value("string"))})
    tags = [[LABELS[at] for at in np.flatnonzero(row)] for row in truth]
    table = datasets.Dataset.from_dict({"image": list(pictures()), "tags": tags}, features=features)
    network = save_vit(folder, problem_type="multi_label_classification")
    return Case(network, table, truth, {"label_column": "tags"})


def numbers(folder: Path) -> Case:
    truth = np.random.default_rng(3).normal(size=(ROWS, 1))
    table = datasets.Dataset.from_dict({"text": texts(), "score": truth[:, 0].tolist()})
    with_config(save_bert(folder), **REGRESSION)
    return Case(folder, table, truth, {"label_column": "score"})


def words(folder: Path) -> Case:
    table = sentences(ROWS)
    return Case(save_tagger(folder), table, np.array([TAGS.index(tag) for tags in table["tags"] for tag in tags]))


def embeddings(folder: Path) -> Case:
    return Case(save_encoder(folder), datasets.Dataset.from_dict({"text": texts()}), None)


TASKS: tuple[Callable[[Path], Case], ...] = (classes, several, numbers, words, embeddings)
#: What people read of an answer, beside the numbers that all answers have.
NUMBERS = ("probabilities", "msp", "entropy", "values", "low", "high", "embeddings", "ood_score", "typicality")


@pytest.fixture(scope="module", params=TASKS, ids=lambda make: make.__name__)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("contract")
    made: Case = request.param(folder / "network")
    made.table.to_parquet(folder / "data.parquet")
    hydractl.calibrate(made.network, id_data=f"{folder}/data.parquet", output=folder / "model", **made.columns)
    hydractl.export(folder / "model", output=folder / "model.onnx")
    return made._replace(network=folder)


def predicted(case: Case, name: str) -> Any:
    return hydractl.predict(case.network / name, f"{case.network}/data.parquet")


def measured(case: Case, name: str, **options: Any) -> dict[str, Any]:
    options |= {"bootstrap": 0, "allow_leak": True, **case.columns}
    models = hydractl.evaluate({"a": case.network / name}, id_data=f"{case.network}/data.parquet", **options).models
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


def test_an_exported_graph_gives_the_same_answers(case: Case) -> None:
    ours, theirs = predicted(case, "model").answers, predicted(case, "model.onnx").answers
    assert ours.columns.get("labels") == theirs.columns.get("labels") and len(ours) == len(theirs) == ROWS
    for name in NUMBERS:
        value = getattr(ours, name, None)
        if value is not None:
            np.testing.assert_allclose(getattr(theirs, name), value, rtol=0, atol=1e-4, err_msg=name)
    if case.truth is not None:
        assert measured(case, "model.onnx") == pytest.approx(measured(case, "model"), rel=1e-3, nan_ok=True)


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
