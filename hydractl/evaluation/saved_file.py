"""One file of saved predictions: what it holds of a data set, read a range of samples at a time."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hydractl.errors import DataError
from hydractl.evaluation.zipped import zipped_arrays

ENDINGS = (".safetensors", ".npz")
NAMES = ("logits", "probabilities", "features", "labels")
FLOATS = ("F32", "F64", "float32", "float64")
TOLERANCE = 1e-3  # in a sum of probabilities; float32 is a thousand times more exact
SMALLEST = np.finfo(np.float32).tiny  # stands for a probability of zero, whose logarithm is not finite


def open_set(path: Path) -> SavedSet:
    """What a file holds of a data set.

    Raises:
        DataError: it is damaged, or holds no logits of a shape that makes sense.
    """
    with _readable(path):
        return _open_npz(path) if path.suffix == ".npz" else _open_safetensors(path)


def read_tensors(path: Path, *names: str) -> tuple[Tensor, ...]:
    """Small tensors of a file, whole.

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
    """What the header of a safetensors file says of it.

    Raises:
        DataError: it is damaged.
    """
    with _readable(path), safe_open(path, framework="pt") as file:
        return file.metadata() or {}


@dataclass(frozen=True, eq=False)
class Rows:
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
    """What a file holds of one data set of N samples."""

    path: Path
    logits: Rows
    labels: Tensor | None
    features: Rows | None

    def labels_of(self, rows: slice) -> Tensor | None:
        """The labels of a range of samples, None where there are none.

        Raises:
            DataError: one is outside the classes.
        """
        if self.labels is None:
            return None
        found, classes = self.labels[rows], self.logits.shape[-1]
        outside = ((found < 0) | (found >= classes)).nonzero()
        if len(outside):
            at = int(outside[0])
            raise DataError(
                f"{self.path}: sample {rows.start + at} has label {int(found[at])}: expected 0 to {classes - 1}"
            )
        return found


#: What the libraries that read these files raise of damaged ones.
DAMAGES = (SafetensorError, OSError, ValueError, LookupError, BadZipFile, EOFError, RuntimeError, zlib.error,
           OverflowError, SyntaxError, struct.error)  # fmt: skip


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns what libraries raise of a damaged file into an error of ours."""
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
    return _saved_set(path, views, shapes, torch.as_tensor(views.pop("labels")[:]) if "labels" in views else None)


def _open_npz(path: Path) -> SavedSet:
    arrays = zipped_arrays(path, NAMES)
    shapes = {name: array.shape for name, array in arrays.items()}
    _require_floats({name: array.dtype.newbyteorder("=").name for name, array in arrays.items()})
    labels = arrays.pop("labels", None)
    return _saved_set(path, arrays, shapes, None if labels is None else torch.from_numpy(labels.values))


def _require_floats(dtypes: Mapping[str, str]) -> None:
    for name, dtype in dtypes.items():
        if name != "labels" and dtype not in FLOATS:
            remedy = "expected float32 or float64, half precision blurs every metric"
            raise ValueError(f"{name} are of type {dtype}: {remedy}")


def _saved_set(
    path: Path, sources: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], labels: Tensor | None
) -> SavedSet:
    found = sorted(sources.keys() & {"logits", "probabilities"})
    if len(found) != 1:
        held = sorted([*sources, *(["labels"] if labels is not None else [])])
        raise ValueError(f"holds {', '.join(held) or 'nothing'}: expected `logits` or `probabilities`")
    for name, last in ((found[0], "classes"), ("features", "width")):
        if name in shapes and len(shapes[name]) not in (2, 3):
            raise ValueError(
                f"{name} of shape {list(shapes[name])}: expected [members, samples, {last}] or [samples, {last}]"
            )
        if name in shapes and (0 in shapes[name] or shapes[name][-1] < (2 if name != "features" else 1)):
            raise ValueError(f"{name} of shape {list(shapes[name])}: expected at least one sample and two classes")
    logits = Rows(path, sources[found[0]], shapes[found[0]], found[0] == "probabilities")
    features = Rows(path, sources["features"], shapes["features"]) if "features" in sources else None
    if features is not None and features.shape[:2] != logits.shape[:2]:
        raise ValueError(
            f"features of {features.shape[0]} members and {features.shape[1]} samples, {found[0]} of "
            f"{logits.shape[0]} and {logits.shape[1]}: expected the same"
        )
    return SavedSet(path, logits, None if labels is None else _checked(labels, logits.shape[1]), features)


def _checked(labels: Tensor, samples: int) -> Tensor:
    if labels.shape != (samples,) or labels.dtype.is_floating_point or labels.dtype in (torch.bool, torch.complex64):
        shape, kind = list(labels.shape), str(labels.dtype).removeprefix("torch.")
        raise ValueError(f"labels of shape {shape} and type {kind}: expected {samples} whole numbers, one per sample")
    return labels.to(torch.int64)
