"""Saved predictions from outside: what is no answer of a system is refused by file and sample, before it is read."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import torch
from numpy.lib import format as npy
from safetensors.torch import save_file

from hydractl.errors import DataError, HydractlError
from hydractl.evaluation import saved_file
from hydractl.evaluation.run import predict_sets
from hydractl.evaluation.saved_predictions import read_predictions
from tests.hostile import within_limits

LOGITS = np.random.default_rng(0).normal(size=(2, 6, 3))
LABELS = np.array([0, 1, 2, 0, 1, 2])
SOFTMAX = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)


def measure(folder: Path) -> Any:
    with within_limits():
        saved = read_predictions(folder)
        return predict_sets(saved, list(saved.files))


def header(shape: tuple[int, ...], dtype: str = "<f4", fortran: bool = False) -> bytes:
    out = BytesIO()
    npy.write_array_header_1_0(out, {"shape": shape, "fortran_order": fortran, "descr": dtype})
    return out.getvalue()


def zipped(path: Path, **members: bytes) -> None:
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_order_of_bytes_and_axes_is_read_alike(tmp_path: Path, dtype: str, order: Any) -> None:
    np.savez(tmp_path / "id.npz", logits=np.asarray(LOGITS.astype(dtype), order=order), labels=LABELS.astype(">i2"))
    table = next(iter(measure(tmp_path).tables.values()))
    assert np.allclose(table.msp, SOFTMAX.mean(0).max(-1), atol=1e-6)


def changed(array: np.ndarray, value: float) -> np.ndarray:
    """The array with one number of sample 4 changed."""
    copy = array.copy()
    copy[1, 4, 2] = value
    return copy


VALUES = [
    ("features", LOGITS, "expected `logits` or `probabilities`"),
    ("logits", LOGITS[0, 0], "expected .members, samples, classes"),
    ("logits", LOGITS.astype(np.float16), "float16: expected float32 or float64"),
    ("logits", LOGITS.astype(np.int64), "int64: expected float32 or float64"),
    ("logits", LOGITS[:, :0], "expected at least one sample"),
    ("logits", LOGITS[:0], "expected at least one sample"),
    ("logits", LOGITS[..., :1], "two classes"),
    ("logits", LOGITS[None], "expected .members, samples, classes"),
    *(("logits", changed(LOGITS, bad), "sample 4 of member 1: a number is NaN") for bad in (np.nan, np.inf, -np.inf)),
    ("probabilities", LOGITS, "are these logits"),
    ("probabilities", np.abs(LOGITS), "sample 0 of member 0: the probabilities do not sum to 1"),
    ("probabilities", np.zeros_like(LOGITS), "sample 0 of member 0: the probabilities do not sum to 1"),
    *(("probabilities", changed(SOFTMAX, bad), "sample 4 of member 1: ") for bad in (-0.1, 1.1, np.nan, np.inf, 0.0)),
]


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize(("name", "array", "message"), VALUES)
def test_numbers_that_cannot_be_are_refused_by_file_and_sample(
    tmp_path: Path, name: str, array: np.ndarray, message: str, ending: str
) -> None:
    path = tmp_path / f"id.{ending}"
    if ending == "npz":
        np.savez(path, **{name: array, "labels": LABELS})
    else:
        save_file({name: torch.tensor(array), "labels": torch.tensor(LABELS)}, path)
        message = message.replace("float16:", "F16:").replace("int64:", "I64:")
    with pytest.raises(DataError, match=message) as raised:
        measure(tmp_path)
    assert str(raised.value).startswith(f"{path}: ") and len(str(raised.value)) < 300 + len(str(path))


@pytest.mark.parametrize(
    "labels", [LABELS[:5], LABELS[None], LABELS.astype(float), LABELS > 1, LABELS + 1, LABELS - 1, LABELS * 10**9]
)
def test_labels_that_cannot_be_are_refused(tmp_path: Path, labels: np.ndarray) -> None:
    np.savez(tmp_path / "id.npz", logits=LOGITS, labels=labels)
    with pytest.raises(DataError, match=r"id\.npz: .*(labels of shape|has label)"):
        measure(tmp_path)


def promises() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Files of a few bytes, and what is wrong with them."""
    labels = header((6,), "<i8") + LABELS.astype("<i8").tobytes()
    for shape in ((10**12, 3), (2**40, 2**40, 2**40), (10**6, 1000, 1000), (2**31, 1)):
        yield "larger than the", {"logits": header(shape), "labels": labels}
    yield "is not all there", {"logits": header((1, 6, 3)), "labels": labels}
    yield "is not all there", {"logits": header((1, 6, -3)) + b"0" * 72, "labels": labels}
    yield (
        "of type object",
        {"logits": header((6, 3), "|O") + b"cos\nsystem\n(S'true'\ntR.".ljust(144), "labels": labels},
    )
    yield "cannot be read", {"logits": b"\x93NUMPY\x09\x00" + b"0" * 100, "labels": labels}
    yield "cannot be read", {"logits": b"", "labels": labels}
    yield "cannot be read", {"logits": b"\x93NUMPY\x01\x00\xff\xff{'shape': (" + b"1," * 32000, "labels": labels}
    yield "larger than the", {"logits": header((6, 3)) + b"0" * 72, "labels": header((10**11,), "<i8")}


@pytest.mark.parametrize(("message", "members"), list(promises()))
def test_what_a_header_promises_is_not_believed(tmp_path: Path, message: str, members: dict[str, bytes]) -> None:
    zipped(tmp_path / "id.npz", **members)
    tracemalloc.start()
    with pytest.raises(DataError, match=message):
        measure(tmp_path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**24


def test_a_zip_of_zeros_is_refused_by_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zipped(tmp_path / "id.npz", logits=header((1, 6, 3)) + bytes(2**22))
    monkeypatch.setattr(saved_file, "LARGEST", 2**21)
    assert (tmp_path / "id.npz").stat().st_size < 2**13
    with pytest.raises(DataError, match="larger than the 2097152 bytes"):
        measure(tmp_path)


@pytest.mark.parametrize("cut", [0, 1, 10, 100, 300, -1, -30])
def test_damaged_files_are_one_line(tmp_path: Path, cut: int) -> None:
    for ending in ("npz", "safetensors"):
        path = tmp_path / f"id.{ending}"
        if ending == "npz":
            np.savez(path, logits=LOGITS, labels=LABELS)
        else:
            save_file({"logits": torch.tensor(LOGITS), "labels": torch.tensor(LABELS)}, path)
        path.write_bytes(path.read_bytes()[:cut])
        with pytest.raises(DataError, match=f"id.{ending}: cannot be read as predictions"):
            measure(tmp_path)
        path.unlink()


def test_every_byte_turned_is_refused_or_harmless(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "id.npz", logits=LOGITS.astype(np.float32), labels=LABELS)
    whole = (tmp_path / "id.npz").read_bytes()
    for place in range(0, len(whole), 3):
        (tmp_path / "id.npz").write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            measure(tmp_path)
        except HydractlError as error:
            assert str(error).startswith(str(tmp_path)) and len(str(error)) < 400 + len(str(tmp_path))  # noqa: PT017


def test_sets_of_one_system_have_one_number_of_classes(tmp_path: Path) -> None:
    (tmp_path / "ood").mkdir()
    np.savez(tmp_path / "id.npz", logits=LOGITS, labels=LABELS)
    np.savez(tmp_path / "ood" / "noise.npz", logits=np.zeros((2, 5, 4)))
    with pytest.raises(DataError, match=r"noise\.npz: has 4 classes, id\.npz has 3"):
        measure(tmp_path)
    np.savez(tmp_path / "ood" / "noise.npz", logits=np.zeros((2, 5, 3)))
    measure(tmp_path)
    (tmp_path / "predictions.json").write_text('{"format": "hydractl-predictions", "version": 1, "labels": ["a", "b"]}')
    with pytest.raises(DataError, match=r"has 3 classes, predictions\.json names 2"):
        measure(tmp_path)
