from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hydractl.data.samples import Samples
from hydractl.errors import ArtifactError, DataError, OutputError
from hydractl.evaluation.run import SystemPredictions, predict_sets
from hydractl.metrics.classification import tabulate
from hydractl.systems.saved import SavedPredictions, write_answers
from hydractl.systems.saved_file import SAVED
from hydractl.systems.system import EvaluationData, SetKey
from hydractl.tasks.task import Answers

ID = SetKey("id", "id")
LOGITS = np.random.default_rng(0).normal(size=(2, 6, 3))
LABELS = np.array([0, 1, 2, 0, 1, 2])
SOFTMAX = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)


def measure(folder: Path) -> SystemPredictions:
    saved = SavedPredictions(folder)
    return predict_sets(saved, list(saved.sets))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_written_comes_back(tmp_path: Path, dtype: Any) -> None:
    logits = LOGITS.astype(dtype)
    path = tmp_path / "id.safetensors"
    write_answers(path, Answers(task=SAVED, member_logits=logits, truth=LABELS), {})
    written = load_file(path)
    assert np.array_equal(written["logits"], logits) and np.array_equal(written["labels"], LABELS)
    table, whole = measure(tmp_path).tables[ID], tabulate(logits, LABELS)
    for name in ("msp", "entropy", "expected_entropy", "disagreement"):
        assert np.array_equal(getattr(table, name), getattr(whole, name))
    with pytest.raises(OutputError, match="exists already"):
        write_answers(path, Answers(task=SAVED, member_logits=logits, truth=LABELS), {})


def test_an_outside_method_joins_with_npz_of_logits_or_probabilities(tmp_path: Path) -> None:
    tables = []
    for name, array in (("logits", LOGITS.astype(">f4")), ("probabilities", np.asfortranarray(SOFTMAX))):
        folder = tmp_path / name
        (folder / "ood" / "far").mkdir(parents=True)
        np.savez(folder / "id.npz", labels=LABELS.astype(">i2"), **{name: array})
        with (folder / "ood" / "far" / "noise.NPZ").open("wb") as file:
            np.savez(file, **{name: array[0]})
        tables.append(measure(folder).tables)
        assert list(tables[-1]) == [ID, SetKey("ood", "noise", "far")]
    for key in tables[0]:
        assert np.allclose(tables[0][key].msp, tables[1][key].msp, atol=1e-6)
    assert np.allclose(tables[0][ID].msp, SOFTMAX.mean(0).max(-1), atol=1e-6)


def test_a_probability_of_zero_is_finite(tmp_path: Path) -> None:
    np.savez(tmp_path / "id.npz", probabilities=np.eye(3), labels=np.array([0, 1, 0]))
    table = measure(tmp_path).tables[ID]
    assert np.isfinite(table.required_outcomes().nll).all()
    assert table.required_outcomes().correct.tolist() == [True, True, False]


def save(folder: Path, ending: str, **arrays: np.ndarray) -> Path:
    path = folder / f"id.{ending}"
    if ending == "npz":
        np.savez(path, **arrays)
    else:
        save_file({name: torch.tensor(array) for name, array in arrays.items()}, path)
    return path


def changed(array: np.ndarray, value: float) -> np.ndarray:
    """The array with one number of sample 4 changed."""
    copy = array.copy()
    copy[1, 4, 2] = value
    return copy


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("features", LOGITS, "holds no logits, probabilities or confidence: add"),
        ("logits", LOGITS[0, 0], "expected .members, samples, classes"),
        ("logits", LOGITS.astype(np.float16), "float16: expected float32 or float64"),
        ("logits", LOGITS[..., :1], "at least two"),
        ("logits", changed(LOGITS, np.nan), "sample 4 of member 1: a number is NaN"),
        ("probabilities", np.abs(LOGITS), "sample 0 of member 0: the probabilities do not sum to 1"),
        ("probabilities", changed(SOFTMAX, -0.1), "sample 4 of member 1: a probability is negative"),
    ],
)
def test_numbers_that_cannot_be_are_refused_by_file_and_sample(
    tmp_path: Path, name: str, array: np.ndarray, message: str, ending: str
) -> None:
    path = save(tmp_path, ending, **{name: array, "labels": LABELS})
    with pytest.raises(DataError, match=message) as raised:
        measure(tmp_path)
    assert str(raised.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "labels", [LABELS[:5], LABELS.astype(float), LABELS + 1, LABELS[:, None], np.eye(6, 3, dtype=int)]
)
def test_labels_that_cannot_be_are_refused(tmp_path: Path, labels: np.ndarray) -> None:
    np.savez(tmp_path / "id.npz", logits=LOGITS, labels=labels)
    with pytest.raises(DataError, match=r"id\.npz: .*label"):
        measure(tmp_path)


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize("cut", [0, 100, -30])
def test_damaged_files_are_one_line(tmp_path: Path, cut: int, ending: str) -> None:
    path = save(tmp_path, ending, logits=LOGITS, labels=LABELS)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=f"id.{ending}: cannot be read as predictions"):
        measure(tmp_path)


def test_sets_of_one_system_have_one_number_of_classes(tmp_path: Path) -> None:
    (tmp_path / "ood").mkdir()
    np.savez(tmp_path / "id.npz", logits=LOGITS, labels=LABELS)
    np.savez(tmp_path / "ood" / "noise.npz", logits=np.zeros((2, 5, 4)))
    with pytest.raises(DataError, match=r"noise\.npz: has 4"):
        measure(tmp_path)
    (tmp_path / "predictions.json").write_text('{"format": "hydractl-predictions", "version": 1, "labels": ["a", "b"]}')
    with pytest.raises(DataError, match=r"predictions\.json names"):
        measure(tmp_path)


def test_a_file_may_be_named_in_another_unicode_form(tmp_path: Path) -> None:
    (tmp_path / "ood").mkdir()
    np.savez(tmp_path / "id.npz", logits=LOGITS, labels=LABELS)
    np.savez(tmp_path / "ood" / "e\u0301te\u0301.npz", logits=LOGITS[:, :5])
    assert SavedPredictions(tmp_path).samples(SetKey("ood", "\u00e9t\u00e9")) == 5


def test_only_predictions_of_the_same_samples_are_compared(tmp_path: Path) -> None:
    def save(name: str, labels: np.ndarray[Any, Any], *sets: str) -> SavedPredictions:
        (tmp_path / name / "ood").mkdir(parents=True)
        np.savez(tmp_path / name / "id.npz", logits=LOGITS[:, : len(labels)], labels=labels)
        for each in sets:
            np.savez(tmp_path / name / "ood" / f"{each}.npz", logits=LOGITS)
        return SavedPredictions(tmp_path / name)

    first = save("first", LABELS, "far")
    save("same", LABELS, "far").check_beside(first)
    (tmp_path / "first" / "predictions.json").write_text(
        '{"format": "hydractl-predictions", "version": 1, "labels": ["a", "b", "c"]}'
    )
    named, renamed = SavedPredictions(tmp_path / "first"), (LABELS + 1) % 3
    data = EvaluationData({ID: Samples("x", modality="image", inputs=[None] * 6, labels=renamed)})
    save("renamed", renamed, "far").check_beside(named)  # without names, other numbers may stand for the same classes
    save("alike", LABELS, "far").check(data)
    shuffled = save("shuffled", LABELS[[0, 1, 2, 1, 0, 2]], "far")
    with pytest.raises(DataError, match="labels saved for id are not those of .*first"):
        shuffled.check_beside(named)
    with pytest.raises(DataError, match="labels saved for id are not those of the data"):
        shuffled.check(data)
    for name, labels, sets, message in (
        ("fewer", LABELS[:5], ["far"], "for 5 samples of id, but .*first for 6"),
        ("turned", LABELS[::-1], ["far"], "labels saved for id are not those of .*first"),
        ("lacking", LABELS, [], "lacking: has no predictions for ood/far"),
        ("more", LABELS, ["far", "near"], "first: has no predictions for ood/near"),
    ):
        with pytest.raises(DataError, match=message):
            save(name, labels, *sets).check_beside(first)


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        _ = SavedPredictions(tmp_path / "x").sets
    with pytest.raises(DataError, match=r"holds no id\.safetensors"):
        _ = SavedPredictions(tmp_path).sets
    np.savez(tmp_path / "id.npz", logits=np.zeros((3, 2)))
    (tmp_path / "predictions.json").write_text("{}")
    with pytest.raises(ArtifactError, match="hydractl-predictions"):
        _ = SavedPredictions(tmp_path).sets
    (tmp_path / "predictions.json").unlink()
    (tmp_path / "id.safetensors").write_bytes(b"junk")
    with pytest.raises(DataError, match="the same set"):
        _ = SavedPredictions(tmp_path).sets
    (tmp_path / "id.safetensors").unlink()
    (tmp_path / "stray.npz").write_bytes(b"")
    with pytest.raises(DataError, match="not a place"):
        _ = SavedPredictions(tmp_path).sets
