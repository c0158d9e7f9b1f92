"""Saved predictions: what is written comes back, whatever the order of batches; outside methods join as npz."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hydractl.errors import ArtifactError, DataError, OutputError
from hydractl.evaluation.run import predict_sets
from hydractl.evaluation.saved_predictions import read_predictions
from hydractl.evaluation.saving import saving
from hydractl.evaluation.sets import SetKey
from hydractl.evaluation.systems import AnsweredBatch
from hydractl.metrics.prediction_table import tabulate

ID = SetKey("id", "id")


def shuffled_batches(logits: torch.Tensor, labels: torch.Tensor) -> Iterator[AnsweredBatch]:
    order = torch.randperm(logits.shape[1], generator=torch.Generator().manual_seed(0))
    for positions in order.split(4):
        yield AnsweredBatch(logits[:, positions], labels[positions], positions)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batches_in_any_order_are_written_in_the_order_of_the_set(tmp_path: Path, dtype: torch.dtype) -> None:
    logits, labels = torch.randn(3, 300, 5, dtype=dtype), torch.randint(5, (300,))
    path = tmp_path / "a" / "id.safetensors"
    with saving(path, 300, shuffled_batches(logits, labels), force=False) as batches:
        assert sum(len(batch.positions) for batch in batches) == 300
        assert not path.exists()  # until it is whole
    written = load_file(path)
    assert torch.equal(written["logits"], logits) and torch.equal(written["labels"], labels)
    table, whole = predict_sets(read_predictions(tmp_path / "a"), [ID]).tables[ID], tabulate(logits.numpy())
    for name in ("msp", "entropy", "expected_entropy", "disagreement", "energy"):
        assert np.array_equal(getattr(table, name), getattr(whole, name))
    assert np.array_equal(table.labelled().labels, labels)
    with pytest.raises(OutputError, match="exists already"), saving(path, 300, iter(()), force=False):
        pass


def test_nothing_is_left_of_a_set_that_was_interrupted(tmp_path: Path) -> None:
    logits, labels = torch.randn(2, 11, 5), torch.randint(5, (11,))
    with (
        pytest.raises(KeyboardInterrupt),
        saving(tmp_path / "id.safetensors", 11, shuffled_batches(logits, labels), force=False) as batches,
    ):
        next(batches)
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_an_outside_method_joins_with_npz_of_logits_or_probabilities(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(2, 9, 4)).astype(np.float32), generator.integers(4, size=9)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for name, arrays in (("a", {"logits": logits}), ("b", {"probabilities": probabilities})):
        (tmp_path / name / "ood" / "far").mkdir(parents=True)
        np.savez(tmp_path / name / "id.npz", labels=labels, **arrays)
        np.savez(tmp_path / name / "ood" / "far" / "noise.npz", **{key: array[0] for key, array in arrays.items()})
    tables = []
    for name in ("a", "b"):
        saved = read_predictions(tmp_path / name)
        assert list(saved.files) == [ID, SetKey("ood", "noise", "far")]
        tables.append(predict_sets(saved, list(saved.files)).tables)
    for key in tables[0]:
        assert np.allclose(tables[0][key].msp, tables[1][key].msp, atol=1e-6)
    assert np.allclose(tables[0][ID].msp, probabilities.mean(0).max(-1), atol=1e-6)


def test_a_probability_of_zero_is_finite(tmp_path: Path) -> None:
    np.savez(tmp_path / "id.npz", probabilities=np.eye(3), labels=np.array([0, 1, 0]))
    table = predict_sets(read_predictions(tmp_path), [ID]).tables[ID]
    assert np.isfinite(table.labelled().nll).all()
    assert table.labelled().correct.tolist() == [True, True, False]


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no folder"):
        read_predictions(tmp_path / "x")
    with pytest.raises(DataError, match=r"holds no id\.safetensors"):
        read_predictions(tmp_path)
    np.savez(tmp_path / "id.npz", logits=np.zeros((3, 2)))
    (tmp_path / "predictions.json").write_text("{}")
    with pytest.raises(ArtifactError, match="hydractl-predictions"):
        read_predictions(tmp_path)
    (tmp_path / "predictions.json").unlink()
    (tmp_path / "id.safetensors").write_bytes(b"junk")
    with pytest.raises(DataError, match="the same set"):
        read_predictions(tmp_path)
    (tmp_path / "id.npz").unlink()
    with pytest.raises(DataError, match="cannot be read as predictions"):
        predict_sets(read_predictions(tmp_path), [ID])
    (tmp_path / "stray.npz").write_bytes(b"")
    with pytest.raises(DataError, match="in no place"):
        read_predictions(tmp_path)
