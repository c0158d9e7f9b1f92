"""Saved predictions: a folder with a file of logits for each data set, so that any method joins an evaluation.

    FOLDER/id.safetensors                labelled in-distribution samples; the one file that must be there
    FOLDER/calibration.safetensors       labelled, for temperature and prediction sets
    FOLDER/ood/[near/|far/]NAME.safetensors
    FOLDER/shift/NAME/SEVERITY.safetensors   labelled
    FOLDER/classifier.safetensors        optional: what makes logits of features, for the OOD scores vim and react
    FOLDER/predictions.json              optional: classes, temperature, cost, what computed them

Each file holds `logits`, [members, samples, classes] or [samples, classes] in float32 or float64, or in their
place `probabilities` of these shapes; and `labels` [samples], whole numbers. For OOD scores of features it holds
`features` as well, [members, samples, width] or [samples, width], what the classifiers read, and the classifier's file
`weight`, [members, classes, width], and `bias`, [members, classes]. An .npz with the same names does as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from hydractl.evaluation.predictor import AnsweredBatch, Classifier
from hydractl.evaluation.sets import SetKey

FORMAT = "hydractl-predictions"
VERSION = 1
ABOUT = "predictions.json"
CLASSIFIER = "classifier"  # the stem of its file
ENDINGS = (".safetensors", ".npz")
CHUNK = 2**21  # logits read at a time
SMALLEST = np.finfo(np.float32).tiny  # stands for a probability of zero, whose logarithm is not finite


@dataclass(frozen=True, eq=False)
class SavedPredictions:
    """A folder of saved predictions, opened; answers are read when asked for."""

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

    @property
    def classifier(self) -> Classifier | None:
        path = next((path for end in ENDINGS if (path := self.folder / f"{CLASSIFIER}{end}").exists()), None)
        if path is None:
            return None
        with _readable(path):
            weight, bias = (_whole(path, name) for name in ("weight", "bias"))
            return Classifier(weight.reshape(-1, *weight.shape[-2:]), bias.reshape(-1, bias.shape[-1]))

    def samples(self, key: SetKey) -> int:
        return self._open(key).logits.shape[1]

    def answers(self, key: SetKey, features: bool = False) -> Iterator[AnsweredBatch]:
        saved = self._open(key)
        if key.has_labels and saved.labels is None:
            raise DataError(f"{saved.path}: holds no labels: add `labels`, one whole number per sample")
        if features and saved.features is None:
            raise DataError(
                f"{saved.path}: holds no features: save the predictions again by an evaluation with this OOD score, "
                "add `features`, or choose a score that reads logits"
            )
        rows = saved.features if features else None
        size = max(1, CHUNK // max(part.shape[0] * part.shape[-1] for part in (saved.logits, rows) if part is not None))
        for start in range(0, saved.logits.shape[1], size):
            at = slice(start, start + size)
            part = saved.logits[at]
            labels = saved.labels[at] if key.has_labels and saved.labels is not None else None
            positions = torch.arange(start, start + part.shape[1])
            yield AnsweredBatch(part, labels, positions, None if rows is None else rows[at])

    def stored_labels(self, key: SetKey) -> NDArray[np.int64] | None:
        """The labels `[N]` saved with a set, None where there are none."""
        labels = self._open(key).labels
        return None if labels is None else labels.numpy()

    def _file(self, key: SetKey) -> Path:
        # Groups are for means; a set is the same whichever group it is counted to.
        wanted = (key.role, key.name if key.role in ("ood", "shift") else "", key.severity)
        for other, path in self.files.items():
            if (other.role, other.name if other.role in ("ood", "shift") else "", other.severity) == wanted:
                return path
        raise DataError(f"{self.folder}: holds no predictions for {key.path}: add {key.path}.safetensors or .npz")

    def _open(self, key: SetKey) -> _SavedSet:
        path = self._file(key)
        with _readable(path):
            return _open_npz(path) if path.suffix == ".npz" else _open_safetensors(path)


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
    for path in sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS):
        if path.parent == folder and path.stem == CLASSIFIER:
            continue
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
class _SavedSet:
    """What a file holds of one data set of N samples."""

    path: Path
    logits: _Rows
    labels: Tensor | None
    features: _Rows | None


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns what libraries raise of a damaged file into an error of ours."""
    try:
        yield
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: cannot be read as predictions: {reason}") from error


def _open_safetensors(path: Path) -> _SavedSet:
    file: Any = safe_open(path, framework="pt")  # stays open: a slice of it is read batch by batch
    names = set(file.keys())
    views = {name: file.get_slice(name) for name in names - {"labels"}}
    shapes = {name: tuple(view.get_shape()) for name, view in views.items()}
    return _saved_set(path, views, shapes, file.get_tensor("labels") if "labels" in names else None)


def _open_npz(path: Path) -> _SavedSet:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in set(file.files) & {"logits", "probabilities", "features"}}
        labels = torch.from_numpy(file["labels"].astype(np.int64)) if "labels" in file.files else None
    return _saved_set(path, arrays, {name: array.shape for name, array in arrays.items()}, labels)


def _saved_set(
    path: Path, sources: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], labels: Tensor | None
) -> _SavedSet:
    found = sorted(sources.keys() & {"logits", "probabilities"})
    if len(found) != 1:
        held = sorted([*sources, *(["labels"] if labels is not None else [])])
        raise ValueError(f"holds {', '.join(held) or 'nothing'}: expected `logits` or `probabilities`")
    for name, last in ((found[0], "classes"), ("features", "width")):
        if name in shapes and len(shapes[name]) not in (2, 3):
            raise ValueError(
                f"{name} of shape {list(shapes[name])}: expected [members, samples, {last}] or [samples, {last}]"
            )
    logits = _Rows(path, sources[found[0]], shapes[found[0]], found[0] == "probabilities")
    features = _Rows(path, sources["features"], shapes["features"]) if "features" in sources else None
    if features is not None and features.shape[:2] != logits.shape[:2]:
        raise ValueError(
            f"features of {features.shape[0]} members and {features.shape[1]} samples, {found[0]} of "
            f"{logits.shape[0]} and {logits.shape[1]}: expected the same"
        )
    return _SavedSet(path, logits, labels, features)


def _whole(path: Path, name: str) -> Tensor:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return torch.from_numpy(file[name])
    with safe_open(path, framework="pt") as file:
        tensor: Tensor = file.get_tensor(name)
        return tensor
