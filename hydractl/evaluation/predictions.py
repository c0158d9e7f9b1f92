"""Saved predictions: a folder with a file of logits for each data set, so that any method joins an evaluation.

    FOLDER/id.safetensors                labelled in-distribution samples; the one file that must be there
    FOLDER/calibration.safetensors       labelled, for temperature and prediction sets
    FOLDER/ood/[near/|far/]NAME.safetensors
    FOLDER/shift/NAME/SEVERITY.safetensors   labelled
    FOLDER/predictions.json              optional: classes, temperature, cost, what computed them

Each file holds `logits`, [members, samples, classes] or [samples, classes] in float32 or float64, or in their
place `probabilities` of these shapes; and `labels` [samples], whole numbers. An .npz with the same names does as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hydractl.artifacts import read_artifact
from hydractl.errors import DataError
from hydractl.evaluation.cost import Cost
from hydractl.evaluation.predictor import LogitBatch
from hydractl.evaluation.sets import SetKey

FORMAT = "hydractl-predictions"
VERSION = 1
ABOUT = "predictions.json"
CHUNK = 2**21  # logits read at a time
SMALLEST = np.finfo(np.float32).tiny  # stands for a probability of zero, whose logarithm is not finite


@dataclass(frozen=True, eq=False)
class SavedPredictions:
    """A folder of saved predictions, opened; logits are read when asked for."""

    folder: Path
    files: Mapping[SetKey, Path]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the classes, where they were saved."""
        names = self.about.get("labels")
        return tuple(names) if names is not None else None

    @property
    def temperature(self) -> float:
        return float(self.about.get("temperature") or 1.0)

    @property
    def cost(self) -> Cost | None:
        counted = self.about.get("cost")
        return Cost(**counted) if counted is not None else None

    def samples(self, key: SetKey) -> int:
        return self._open(key)[0].shape[-2]

    def logits(self, key: SetKey) -> Iterator[LogitBatch]:
        logits, labels = self._open(key)
        if key.has_labels and labels is None:
            raise DataError(f"{self._file(key)}: holds no labels: add `labels`, one whole number per sample")
        size = max(1, CHUNK // (logits.shape[0] * logits.shape[-1]))
        for start in range(0, logits.shape[1], size):
            rows = slice(start, start + size)
            part = logits[rows]
            positions = torch.arange(start, start + part.shape[1])
            yield LogitBatch(part, labels[rows] if key.has_labels and labels is not None else None, positions)

    def stored_labels(self, key: SetKey) -> NDArray[np.int64] | None:
        """The labels `[N]` saved with a set, None where there are none."""
        labels = self._open(key)[1]
        return None if labels is None else labels.numpy()

    def _file(self, key: SetKey) -> Path:
        # Groups are for means; a set is the same whichever group it is counted to.
        wanted = (key.role, key.name if key.role in ("ood", "shift") else "", key.severity)
        for other, path in self.files.items():
            if (other.role, other.name if other.role in ("ood", "shift") else "", other.severity) == wanted:
                return path
        raise DataError(f"{self.folder}: holds no predictions for {key.path}: add {key.path}.safetensors or .npz")

    def _open(self, key: SetKey) -> tuple[_Rows, Tensor | None]:
        path = self._file(key)
        try:
            return _open_npz(path) if path.suffix == ".npz" else _open_safetensors(path)
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise DataError(f"{path}: cannot be read as predictions: {reason}") from error


def read_predictions(folder: Path) -> SavedPredictions:
    """The saved predictions in a folder.

    Raises:
        DataError: no such folder, no file for the in-distribution set, or two files for one set.
        ArtifactError: predictions.json is damaged.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: is no folder of predictions: it should hold id.safetensors or id.npz")
    about: Mapping[str, Any] = {}
    if (folder / ABOUT).exists():
        about = read_artifact(str(folder / ABOUT), FORMAT, VERSION).content
    files: dict[SetKey, Path] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".safetensors", ".npz")):
        key = _key(path.relative_to(folder).with_suffix(""), str(about.get("id_name", "id")))
        if key is None:
            raise DataError(f"{path}: is in no place for predictions: id, calibration, ood/NAME, shift/NAME/SEVERITY")
        if key in files:
            raise DataError(f"{path}: {files[key].name} holds predictions for the same set: remove one")
        files[key] = path
    if not any(key.role == "id" for key in files):
        raise DataError(f"{folder}: holds no id.safetensors or id.npz: predictions of labelled data are needed")
    order = ("id", "calibration", "ood", "shift")
    return SavedPredictions(folder, dict(sorted(files.items(), key=lambda item: order.index(item[0].role))), about)


def _key(place: Path, id_name: str) -> SetKey | None:
    match place.parts:
        case ("id",):
            return SetKey("id", id_name)
        case ("calibration",):
            return SetKey("calibration", "calibration")
        case ("ood", ("near" | "far") as group, name):
            return SetKey("ood", name, group)
        case ("ood", name):
            return SetKey("ood", name)
        case ("shift", name, severity) if severity.isdecimal():
            return SetKey("shift", name, severity=int(severity))
        case _:
            return None


@dataclass(frozen=True, eq=False)
class _Rows:
    """Logits `[M,N,C]`, of which a range of samples is read at a time."""

    path: Path
    source: Any  # a safetensors slice or an array, [N,C] or [M,N,C]
    stored: tuple[int, ...]
    are_probabilities: bool

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


def _open_safetensors(path: Path) -> tuple[_Rows, Tensor | None]:
    file: Any = safe_open(path, framework="pt")  # stays open: a slice of it is read batch by batch
    names = set(file.keys())
    name = _logits_name(names)
    view = file.get_slice(name)
    labels = file.get_tensor("labels") if "labels" in names else None
    return _checked(path, view, tuple(view.get_shape()), name), labels


def _open_npz(path: Path) -> tuple[_Rows, Tensor | None]:
    with np.load(path, allow_pickle=False) as file:
        name = _logits_name(set(file.files))
        array = file[name]
        labels = torch.from_numpy(file["labels"].astype(np.int64)) if "labels" in file.files else None
    return _checked(path, array, array.shape, name), labels


def _logits_name(names: set[str]) -> str:
    found = sorted(names & {"logits", "probabilities"})
    if len(found) != 1:
        raise ValueError(f"holds {', '.join(sorted(names)) or 'nothing'}: expected `logits` or `probabilities`")
    return found[0]


def _checked(path: Path, source: Any, shape: tuple[int, ...], name: str) -> _Rows:
    if len(shape) not in (2, 3):
        raise ValueError(f"{name} of shape {list(shape)}: expected [members, samples, classes] or [samples, classes]")
    return _Rows(path, source, shape, name == "probabilities")
