"""One file of saved predictions: what it holds of a data set, read a range of samples at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hydractl.errors import DataError

ENDINGS = (".safetensors", ".npz")
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
            with np.load(path, allow_pickle=False) as arrays:
                return tuple(torch.from_numpy(arrays[name]) for name in names)
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
        part = self.source[rows] if len(self.stored) == 2 else self.source[:, rows]
        part = torch.as_tensor(part).reshape(self.shape[0], -1, self.shape[-1])
        if part.dtype not in (torch.float32, torch.float64):
            raise DataError(
                f"{self.path}: numbers of type {str(part.dtype).removeprefix('torch.')}: expected float32 or float64, "
                "half precision blurs every metric"
            )
        return part.clamp_min(float(SMALLEST)).log() if self.are_probabilities else part


@dataclass(frozen=True, eq=False)
class SavedSet:
    """What a file holds of one data set of N samples."""

    path: Path
    logits: Rows
    labels: Tensor | None
    features: Rows | None


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns what libraries raise of a damaged file into an error of ours."""
    try:
        yield
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: cannot be read as predictions: {reason}") from error


def _open_safetensors(path: Path) -> SavedSet:
    file: Any = safe_open(path, framework="pt")  # stays open: a slice of it is read batch by batch
    names = set(file.keys())
    views = {name: file.get_slice(name) for name in names - {"labels"}}
    shapes = {name: tuple(view.get_shape()) for name, view in views.items()}
    return _saved_set(path, views, shapes, file.get_tensor("labels") if "labels" in names else None)


def _open_npz(path: Path) -> SavedSet:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in set(file.files) & {"logits", "probabilities", "features"}}
        labels = torch.from_numpy(file["labels"].astype(np.int64)) if "labels" in file.files else None
    return _saved_set(path, arrays, {name: array.shape for name, array in arrays.items()}, labels)


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
    logits = Rows(path, sources[found[0]], shapes[found[0]], found[0] == "probabilities")
    features = Rows(path, sources["features"], shapes["features"]) if "features" in sources else None
    if features is not None and features.shape[:2] != logits.shape[:2]:
        raise ValueError(
            f"features of {features.shape[0]} members and {features.shape[1]} samples, {found[0]} of "
            f"{logits.shape[0]} and {logits.shape[1]}: expected the same"
        )
    return SavedSet(path, logits, labels, features)
