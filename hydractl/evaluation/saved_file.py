"""One file of saved predictions: what it holds of a data set, read a range of samples at a time."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hydractl.errors import DataError

LARGEST = 2**31  # bytes of an array; it is read whole
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@dataclass(frozen=True, eq=False)
class ZippedArray:
    """An array of a file, read at its first use."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @cached_property
    def values(self) -> NDArray[Any]:
        """The whole array, in this machine's order of bytes."""
        with np.load(self.path, allow_pickle=False) as file:
            return np.ascontiguousarray(file[self.name], dtype=self.dtype.newbyteorder("="))

    def __getitem__(self, at: Any) -> NDArray[Any]:
        return self.values[at]


def zipped_arrays(path: Path, names: Collection[str]) -> dict[str, ZippedArray]:
    """Returns the arrays of a file that have one of the names; none is read.

    Raises:
        ValueError, BadZipFile: it is damaged, or an array is larger than LARGEST or the file.
    """
    with ZipFile(path) as file:
        entries = {entry.filename.removesuffix(".npy"): entry for entry in file.infolist()}
        return {name: _header(path, file, entries[name]) for name in entries if name in names}


def _header(path: Path, file: ZipFile, entry: ZipInfo) -> ZippedArray:
    name = entry.filename.removesuffix(".npy")
    with file.open(entry) as content:
        shape, _, dtype = HEADERS[npy.read_magic(content)](content)
        start = content.tell()
    size = prod(shape) * dtype.itemsize
    if max(size, entry.file_size) > LARGEST:
        raise ValueError(f"{name} is larger than the {LARGEST} bytes that are read of it: save it as .safetensors")
    if start + size > entry.file_size or min(shape, default=0) < 0:
        raise ValueError(f"{name} of shape {list(shape)} is not all there")
    return ZippedArray(path, name, shape, dtype)


ENDINGS = (".safetensors", ".npz")
FLAGS = ("correct", "labels")  # of no floating point
PER_SAMPLE = ("confidence", *FLAGS)  # [N], read whole
NAMES = ("logits", "probabilities", "features", *PER_SAMPLE)
FLOATS = ("F32", "F64", "float32", "float64")
TOLERANCE = 1e-3  # in a sum of probabilities; float32 is a thousand times more exact
SMALLEST = np.finfo(np.float32).tiny  # stands for a probability of zero, whose logarithm is not finite


def open_set(path: Path) -> SavedSet:
    """Returns the predictions that a file holds for a data set.

    Raises:
        DataError: it is damaged, or holds no logits of a shape that makes sense.
    """
    with _readable(path):
        return _open_npz(path) if path.suffix == ".npz" else _open_safetensors(path)


def read_tensors(path: Path, *names: str) -> tuple[Tensor, ...]:
    """Returns small tensors of a file, whole.

    Raises:
        DataError: it is damaged, or one is not there.
    """
    with _readable(path):
        if path.suffix == ".npz":
            arrays = zipped_arrays(path, names)
            return tuple(torch.from_numpy(arrays[name].values) for name in names)
        with safe_open(path, framework="pt") as tensors:
            return tuple(tensors.get_tensor(name) for name in names)


def read_metadata(path: Path) -> Mapping[str, str]:
    """Returns the metadata in the header of a safetensors file.

    Raises:
        DataError: it is damaged.
    """
    with _readable(path), safe_open(path, framework="pt") as file:
        return file.metadata() or {}


@dataclass(frozen=True, eq=False)
class StoredRows:
    """An array `[M,N,...]` in a file, of which a range of samples is read at a time."""

    path: Path
    source: Any  # a safetensors slice or an array, [N,...] or [M,N,...]
    stored: tuple[int, ...]
    are_probabilities: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, *self.stored) if len(self.stored) == 2 else self.stored

    def __getitem__(self, rows: slice) -> Tensor:
        with _readable(self.path):
            part = torch.as_tensor(self.source[rows] if len(self.stored) == 2 else self.source[:, rows])
        part = part.reshape(self.shape[0], -1, self.shape[-1])
        if not self.are_probabilities:
            self._require(part.isfinite().all(-1), rows, "a number is NaN or infinite: expected finite numbers")
            return part
        self._require((part >= 0).all(-1), rows, "a probability is negative or NaN: are these logits?")
        whole = (part.sum(-1) - 1).abs() <= TOLERANCE
        self._require(whole, rows, "the probabilities do not sum to 1: are these logits?")
        return part.clamp_min(float(SMALLEST)).log()

    def _require(self, good: Tensor, rows: slice, problem: str) -> None:
        """Raises DataError with the first sample that is not good, `[M,n]`."""
        if not good.all():
            member, sample = (int(place[0]) for place in (~good).nonzero(as_tuple=True))
            raise DataError(f"{self.path}: sample {rows.start + sample} of member {member}: {problem}")


@dataclass(frozen=True, eq=False)
class SavedSet:
    """Predictions in a file for one data set of N samples.

    Attributes:
        logits: None where it holds a confidence alone.
        labels: `[N]`.
        confidence: `[N]`, how sure a failure predictor is of each prediction, higher = surer.
        correct: `[N]` booleans, whether each prediction is right, beside a confidence without logits.
    """

    path: Path
    samples: int
    logits: StoredRows | None
    labels: Tensor | None
    features: StoredRows | None
    confidence: Tensor | None = None
    correct: Tensor | None = None

    @property
    def classes(self) -> int | None:
        """C, where it holds logits."""
        return None if self.logits is None else self.logits.shape[-1]

    def labels_of(self, rows: slice) -> Tensor | None:
        """Returns the labels of a range of samples, None where there are none.

        Raises:
            DataError: one is outside the classes.
        """
        if self.labels is None or self.classes is None:
            return None
        found, classes = self.labels[rows], self.classes
        outside = ((found < 0) | (found >= classes)).nonzero()
        if len(outside):
            at = int(outside[0])
            raise DataError(
                f"{self.path}: sample {rows.start + at} has label {int(found[at])}: expected 0 to {classes - 1}"
            )
        return found


#: Errors that the reading libraries raise for damaged files.
DAMAGES = (SafetensorError, OSError, ValueError, LookupError, BadZipFile, EOFError, RuntimeError, zlib.error,
           OverflowError, SyntaxError, struct.error)  # fmt: skip


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns the libraries' errors for a damaged file into a DataError."""
    try:
        yield
    except DAMAGES as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: cannot be read as predictions: {reason}") from error


def _open_safetensors(path: Path) -> SavedSet:
    file: Any = safe_open(path, framework="pt")  # stays open: a slice of it is read batch by batch
    views = {name: file.get_slice(name) for name in set(file.keys()) & set(NAMES)}
    shapes = {name: tuple(view.get_shape()) for name, view in views.items()}
    _require_floats({name: view.get_dtype() for name, view in views.items()})
    whole = {name: torch.as_tensor(views.pop(name)[:]) for name in views.keys() & set(PER_SAMPLE)}
    return _saved_set(path, views, shapes, whole)


def _open_npz(path: Path) -> SavedSet:
    arrays = zipped_arrays(path, NAMES)
    shapes = {name: array.shape for name, array in arrays.items()}
    _require_floats({name: array.dtype.newbyteorder("=").name for name, array in arrays.items()})
    whole = {name: torch.from_numpy(arrays.pop(name).values) for name in arrays.keys() & set(PER_SAMPLE)}
    return _saved_set(path, arrays, shapes, whole)


def _require_floats(dtypes: Mapping[str, str]) -> None:
    for name, dtype in dtypes.items():
        if name not in FLAGS and dtype not in FLOATS:
            remedy = "expected float32 or float64, half precision blurs every metric"
            raise ValueError(f"{name} are of type {dtype}: {remedy}")


def _saved_set(
    path: Path, sources: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], whole: Mapping[str, Tensor]
) -> SavedSet:
    found = sorted(sources.keys() & {"logits", "probabilities"})
    if len(found) > 1 or not (found or "confidence" in whole):
        held = ", ".join(sorted([*sources, *whole]))
        raise ValueError(f"holds {held or 'nothing'}: expected `logits` or `probabilities`, or `confidence`")
    rows = {name: _rows(path, name, sources[name], shapes[name]) for name in (*found, *sources.keys() & {"features"})}
    logits, features = rows.get(found[0] if found else ""), rows.get("features")
    if features is not None and (logits is None or features.shape[:2] != logits.shape[:2]):
        beside = "no logits" if logits is None else f"{found[0]} of {logits.shape[0]} and {logits.shape[1]}"
        raise ValueError(
            f"features of {features.shape[0]} members and {features.shape[1]} samples, {beside}: expected the same"
        )
    samples = whole["confidence"].numel() if logits is None else logits.shape[1]
    if "correct" in whole and logits is not None:
        raise ValueError("holds `correct` beside logits, which say what is right: leave it out")
    checked = {name: _checked(name, whole[name], samples) for name in PER_SAMPLE if name in whole}
    labels, confidence, correct = map(checked.get, ("labels", "confidence", "correct"))
    return SavedSet(path, samples, logits, labels=labels, features=features, confidence=confidence, correct=correct)


def _rows(path: Path, name: str, source: Any, shape: tuple[int, ...]) -> StoredRows:
    last, least = ("width", 1) if name == "features" else ("classes", 2)
    if len(shape) not in (2, 3):
        raise ValueError(f"{name} of shape {list(shape)}: expected [members, samples, {last}] or [samples, {last}]")
    if 0 in shape or shape[-1] < least:
        raise ValueError(f"{name} of shape {list(shape)}: expected at least one sample and two classes")
    return StoredRows(path, source, shape, name == "probabilities")


def _checked(name: str, values: Tensor, samples: int) -> Tensor:
    """Returns numbers `[N]` of a file in the type that they are used in."""
    kind, shape = str(values.dtype).removeprefix("torch."), list(values.shape)
    if name == "confidence":
        if values.shape != (samples,) or not samples:
            raise ValueError(f"confidence of shape {shape}: expected {samples or 'some'} numbers, one per sample")
        if not (good := values.isfinite()).all():
            raise ValueError(f"confidence of sample {int((~good).nonzero()[0])} is NaN or infinite: expected numbers")
        return values
    whole = not values.dtype.is_floating_point and values.dtype != torch.complex64
    if name == "correct":
        if values.shape != (samples,) or not whole or ((values != 0) & (values != 1)).any():
            raise ValueError(f"correct of shape {shape} and type {kind}: expected {samples} of true and false")
        return values.bool()
    if values.shape != (samples,) or not whole or values.dtype == torch.bool:
        raise ValueError(f"labels of shape {shape} and type {kind}: expected {samples} whole numbers, one per sample")
    return values.to(torch.int64)
