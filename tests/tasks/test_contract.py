"""An answer of every task is the same when it is predicted, evaluated, exported, saved and read back."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pytest
import transformers

import hydractl
import hydractl.auto
from hydractl.errors import OptionError
from hydractl.serve import load_onnx
from hydractl.systems.networks import NetworkSystem
from tests import factories
from tests.cli.conftest import LABELS, interrupt_at, save_bert
from tests.factories import CLASSES, KINDS, NUMBERS, SEVERAL, SEVERAL_LABELS, TAGGED, TAGS, Kind, odd_inputs

ROWS = 48
PROMISES: Mapping[str, Mapping[str, str]] = {
    "classes": {"sets": "80%", "accuracy": "20%"},
    "several": {"recall": "80%"},
    "numbers": {"interval": "80%"},
    "words": {"recall": "80%"},
}
#: What can be promised of the answers of each task.
PROMISED: Mapping[str, tuple[str, ...]] = {
    "classes": ("sets", "accuracy"),
    "several": ("accuracy", "recall"),
    "numbers": ("interval",),
    "words": ("accuracy", "recall"),
    "embeddings": (),
}
#: Labels of a column as its task measures answers by them.
TRUTH = {
    "classes": lambda column: [LABELS.index(label) for label in column],
    "several": lambda column: [[int(label in row) for label in LABELS] for row in column],
    "numbers": lambda column: [[value] for value in column],
    "words": lambda column: [TAGS.index(tag) for row in column for tag in row],
}
#: What people read of an answer, beside the numbers that all answers have.
SHOWN = (
    *("probabilities", "msp", "entropy", "mutual_information", "sets", "sure"),
    *("values", "spread", "low", "high", "embeddings", "ood_score", "typicality", "profile"),
)


class Case(NamedTuple):
    """A folder with a calibrated model, its graph and data; its kind, and the labels as its task measures by them."""

    folder: Path
    kind: Kind
    truth: np.ndarray[Any, Any] | None


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A Hydra of two members with uneven heads, which is right about half of the samples."""
    kind, folder = request.param, tmp_path_factory.mktemp("contract")
    network = kind.save(folder / "network")
    members = [hydractl.prune(network, method="random", budget=budget, seed=budget) for budget in (2, 3)]
    hydractl.fuse(members, output=folder / "hydra")
    table = kind.labelled(folder / "hydra", np.random.default_rng(1), 2 * ROWS)
    for name, rows in (("known", range(ROWS)), ("data", range(ROWS, 2 * ROWS))):
        table.select(rows).to_parquet(folder / f"{name}.parquet")
    given = {**kind.reading, **PROMISES.get(kind.name, {})}
    hydractl.calibrate(folder / "hydra", id_data=f"{folder}/known.parquet", output=folder / "model", **given)
    assert hydractl.export(folder / "model", output=folder / "model.onnx").difference < 1e-4  # from the model's answers
    truth = TRUTH[kind.name](table[kind.column][ROWS:]) if kind.column else None
    return Case(folder, kind, None if truth is None else np.array(truth))


def predicted(case: Case, name: str) -> Any:
    return hydractl.predict(case.folder / name, f"{case.folder}/data.parquet")


def measured(case: Case, name: str, **options: Any) -> dict[str, Any]:
    options = {"bootstrap": 0, "ood_data": {"odd": odd_data(case, 30)}, **case.kind.reading, **options}
    models = hydractl.evaluate({"a": case.folder / name}, id_data=f"{case.folder}/data.parquet", **options).models
    entry: dict[str, Any] = models["a"]
    return entry


def odd_data(case: Case, count: int) -> Any:
    """Grey images, or texts of words that the network does not know."""
    if case.kind in (CLASSES, SEVERAL):
        return odd_inputs("image", count)
    return datasets.Dataset.from_dict({"text": odd_inputs("text", count)})


def leaves(found: Any, place: str = "") -> dict[str, Any]:
    """The numbers and names of an evaluation by their places, without intervals."""
    if not isinstance(found, dict):
        return {place: found} if isinstance(found, int | float | str) else {}
    return {name: leaf for key, inner in found.items() for name, leaf in leaves(inner, f"{place}.{key}").items()}


def test_evaluate_measures_what_predict_answers(case: Case) -> None:
    answers = predicted(case, "model").answers
    table = answers.task.table(replace(answers, truth=None if case.truth is None else answers.task.truth(case.truth)))
    entry = measured(case, "model", bootstrap=100)
    expected = {} if case.truth is None else answers.task.metrics(table)
    for name, value in expected.items():
        if entry["id"].get(name) is not None:
            assert entry["id"][name] == pytest.approx(value, rel=1e-5), name
            assert len(entry["intervals"]["id"][name]) == 2, name
    assert case.truth is None or len({*expected} & {*entry["id"]}) > 2
    assert entry["score"] == "layers" and entry["ood"]["odd"]["auroc"] > 0.5


def labels(answers: Any) -> Any:
    """The labels of answers; of spans, those offered too, their kind, text and place without confidence."""
    given = answers.columns.get("labels")
    if answers.places is None:
        return given
    return [[span[:4] for span in row] for row in [*given, *answers.offered]]


def test_an_exported_graph_gives_the_same_answers(case: Case) -> None:
    ours, theirs = predicted(case, "model").answers, predicted(case, "model.onnx").answers
    assert labels(ours) == labels(theirs) and len(ours) == len(theirs) == ROWS
    for name in SHOWN:
        value = getattr(ours, name, None)
        if value is not None:
            np.testing.assert_allclose(getattr(theirs, name), value, rtol=0, atol=1e-3, err_msg=name)
    of_graph, of_model = (measured(case, name) for name in ("model.onnx", "model"))
    for part in ("id", "ood", "typicality", "conformal", "sure", "recall", "cost"):
        assert leaves(of_graph.get(part)) == pytest.approx(leaves(of_model.get(part)), rel=1e-3), part


@pytest.mark.parametrize("case", [kind for kind in KINDS if kind.name != "words"], indirect=True)
def test_a_graph_is_served_with_the_same_answers(case: Case) -> None:
    ours = predicted(case, "model").answers
    inputs = datasets.load_dataset("parquet", data_files=f"{case.folder}/data.parquet", split="train")
    served = load_onnx(case.folder / "model.onnx").predict(list(inputs[inputs.column_names[0]]))
    assert labels(served) == labels(ours)
    for name in SHOWN:
        value = getattr(ours, name, None)
        if value is not None:
            np.testing.assert_allclose(getattr(served, name), value, rtol=0, atol=1e-3, err_msg=name)


def test_an_exported_graph_is_watched_as_its_model(case: Case) -> None:
    without = "import sys, hydractl; hydractl.Monitor(sys.argv[1]); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", without, case.folder / "model.onnx"], check=True)
    for data, alarm in ((f"{case.folder}/data.parquet", False), (odd_data(case, 300), True)):
        found, expected = (hydractl.monitor(case.folder / name, data=data) for name in ("model.onnx", "model"))
        assert found.alarm is expected.alarm is alarm and found.to_json().keys() == expected.to_json().keys()
        assert found.findings.evidence == pytest.approx(expected.findings.evidence, rel=0.05)
        assert len(found.findings.layers) == len(expected.findings.layers)
        assert any(layer.moved for layer in found.findings.layers) or not alarm


def test_an_interrupted_calibration_goes_on_to_the_same_bytes(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"id_data": f"{case.folder}/known.parquet", "shift_data": {"odd": odd_data(case, 30)}, **case.kind.reading}
    hydractl.calibrate(case.folder / "hydra", **given, output=tmp_path / "whole")
    calls = interrupt_at(monkeypatch, NetworkSystem, "answers", 2)
    with pytest.raises(KeyboardInterrupt):
        hydractl.calibrate(case.folder / "hydra", **given, output=tmp_path / "resumed")
    hydractl.calibrate(case.folder / "hydra", **given, output=tmp_path / "resumed", resume=True)
    assert [key.role for _, key, *_ in calls] == ["id", "shift", "shift"]
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()


def test_what_another_task_has_is_refused_by_the_name_of_the_option(case: Case, tmp_path: Path) -> None:
    hydra, data = case.folder / "hydra", {"id_data": f"{case.folder}/known.parquet", **case.kind.reading}
    for promise in ("sets", "accuracy", "recall", "interval"):
        if promise not in PROMISED[case.kind.name]:
            with pytest.raises(OptionError, match=f"`{promise}` cannot be promised of"):
                hydractl.calibrate(hydra, **data, **{promise: "80%"})
    if case.kind is CLASSES:
        return
    if case.kind in (NUMBERS, TAGGED):
        learning = {"train_data": data["id_data"], "outlier_data": odd_data(case, 9), "steps": 1, **case.kind.reading}
        with pytest.raises(OptionError, match="`outlier_data`"):
            hydractl.finetune([case.folder / "network"], **learning)
    if "accuracy" in PROMISED[case.kind.name]:
        with pytest.raises(OptionError, match="`by_class` with `accuracy`"):
            hydractl.calibrate(hydra, **data, accuracy="80%", by_class=True)
    for message, option in (("msp needs", {"ood_score": "msp"}), ("`ood_data` needs", {"ood_data": odd_data(case, 9)})):
        with pytest.raises(OptionError, match=message):
            hydractl.calibrate(hydra, **data, **option)
    for name, value in (("ood_score", "energy"), ("save_logits", tmp_path / "saved")):
        with pytest.raises(OptionError, match=f"`{name}`"):
            hydractl.evaluate(hydra, **data, allow_leak=True, **{name: value})


@pytest.mark.parametrize("changes", [SEVERAL_LABELS, factories.REGRESSION, factories.CROSS_ENCODER])
def test_pipelines_of_transformers_answer_the_same(changes: dict[str, Any], tmp_path: Path) -> None:
    source, pairs = save_bert(tmp_path / "bert", **changes), [("a good film", "owl owl bad"), ("a film", "good")]
    hydractl.export(source, format="hf", output=tmp_path / "stock")
    hydractl.export(source, format="hf", output=tmp_path / "hydra", as_hydra=True)
    model = hydractl.load(source)
    answers = model.predict(pairs)
    numbers = answers.probabilities if changes is SEVERAL_LABELS else answers.values
    expected = [pytest.approx(dict(zip(model.labels, row, strict=True)), abs=1e-6) for row in numbers]
    for folder in (source, tmp_path / "stock", tmp_path / "hydra"):
        pipe = transformers.pipeline("text-classification", str(folder), top_k=None)
        found = pipe([{"text": first, "text_pair": second} for first, second in pairs])
        assert [{one["label"]: one["score"] for one in row} for row in found] == expected


@pytest.mark.parametrize("case", [CLASSES], indirect=True)
def test_saved_predictions_of_single_classes_give_the_same_numbers(case: Case, tmp_path: Path) -> None:
    network = measured(case, "model", save_logits=tmp_path / "saved")
    saved = hydractl.evaluate(f"predictions:{tmp_path}/saved/a", bootstrap=0).models
    [again] = saved.values()
    for part in ("id", "ood", "typicality", "sure", "by_class"):
        assert again[part] == network[part], part
