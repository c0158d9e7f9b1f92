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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hydractl.data.labels import match_labels
from hydractl.data.streams import SampleStream
from hydractl.errors import DataError, OptionError
from hydractl.evaluation.about import About, read_about
from hydractl.evaluation.cost import Cost
from hydractl.evaluation.predictor import AnsweredBatch, Classifier
from hydractl.evaluation.saved_file import ENDINGS, SavedSet, open_set, read_tensors
from hydractl.evaluation.sets import EvaluationData, SetKey
from hydractl.evaluation.systems import Running

PREFIX = "predictions:"
ABOUT = "predictions.json"
CLASSIFIER = "classifier"  # the stem of its file
CHUNK = 2**21  # logits read at a time


@dataclass(frozen=True, eq=False)
class SavedPredictions:
    """A folder of saved predictions, opened; answers are read when asked for."""

    folder: Path
    files: Mapping[SetKey, Path]
    about: About = field(default_factory=About)

    @property
    def modality(self) -> None:
        return None

    @property
    def sets(self) -> Mapping[SetKey, int]:
        return {key: self.samples(key) for key in self.files}

    @property
    def histories(self) -> Sequence[Mapping[str, Any]]:
        return ()

    @property
    def leaks(self) -> Sequence[Mapping[str, Any]]:
        return self.about.plain("leaks")

    @property
    def draws(self) -> bool:
        return False

    def describe(self) -> dict[str, Any]:
        model = {"reference": f"predictions:{self.folder}"}
        return {"model": model, "networks": self.about.plain("networks")}

    def conditions(self, _running: Running) -> dict[str, Any]:
        return {}

    def check_data(self, data: EvaluationData) -> None:
        for key, samples in data.sets.items():
            if isinstance(samples, SampleStream):
                raise OptionError(f"{self.folder}: saved predictions are compared with all data: leave `streaming` out")
            if (found := self.samples(key)) != len(samples):
                raise DataError(
                    f"{self.folder}: has predictions for {found} samples of {key.path}, the data has {len(samples)}: "
                    "save them again on this data"
                )
            if key.has_labels and self.labels is not None:
                self._check_labels(key, match_labels(samples, self.labels, data.match).labels)

    def _check_labels(self, key: SetKey, labels: NDArray[np.int64] | None) -> None:
        saved = self.stored_labels(key)
        if labels is None or saved is None or (saved != labels).any():
            raise DataError(
                f"{self.folder}: the labels saved for {key.path} are not those of the data, in order: save the "
                "predictions again on this data"
            )

    @contextmanager
    def answering(self, _data: EvaluationData | None, _running: Running) -> Iterator[SavedPredictions]:
        yield self

    def serve(self, _data: EvaluationData | None, _running: Running) -> None:
        """The leading process reads them alone."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the classes, where they were saved."""
        return self.about.labels

    @property
    def temperature(self) -> float:
        return self.about.temperature or 1.0

    @property
    def cost(self) -> Cost | None:
        return self.about.cost

    @property
    def classifier(self) -> Classifier | None:
        path = next((path for end in ENDINGS if (path := self.folder / f"{CLASSIFIER}{end}").exists()), None)
        if path is None:
            return None
        weight, bias = read_tensors(path, "weight", "bias")
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
            labels = saved.labels_of(at) if key.has_labels else None
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

    def _open(self, key: SetKey) -> SavedSet:
        return open_set(self._file(key))


@dataclass(frozen=True)
class PredictionsSpec:
    """The predictions that are saved in a folder."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def open(self) -> SavedPredictions:
        return read_predictions(self.folder)


def parse_predictions(text: str) -> PredictionsSpec | None:
    """What `predictions:FOLDER` asks for; None for other texts.

    Raises:
        OptionError: no folder is named.
    """
    if not text.startswith(PREFIX):
        return None
    if text == PREFIX:
        raise OptionError(f"{text}: names no folder: write predictions:FOLDER")
    return PredictionsSpec(Path(text.removeprefix(PREFIX)))


def read_predictions(folder: Path) -> SavedPredictions:
    """The saved predictions in a folder.

    Raises:
        DataError: no such folder, no file for the in-distribution set, or two files for one set.
        ArtifactError: predictions.json is damaged.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: is no folder of predictions: it should hold id.safetensors or id.npz")
    about = read_about(str(folder / ABOUT)) if (folder / ABOUT).exists() else About()
    files: dict[SetKey, Path] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS):
        if path.parent == folder and path.stem == CLASSIFIER:
            continue
        key = _key(path.relative_to(folder).with_suffix(""), about.id_name)
        if key is None:
            raise DataError(f"{path}: is in no place for predictions: id, calibration, ood/NAME, shift/NAME/SEVERITY")
        if key in files:
            raise DataError(f"{path}: {files[key].name} holds predictions for the same set: remove one")
        files[key] = path
    if not any(key.role == "id" for key in files):
        raise DataError(f"{folder}: holds no id.safetensors or id.npz: predictions of labelled data are needed")
    order = ("id", "calibration", "ood", "shift")
    ordered = dict(sorted(files.items(), key=lambda item: order.index(item[0].role)))
    _refuse_other_classes(ordered, about)
    return SavedPredictions(folder, ordered, about)


def _refuse_other_classes(files: Mapping[SetKey, Path], about: About) -> None:
    """Raises DataError where sets do not have the classes of the in-distribution set, which come first."""
    first, expected = "", 0
    for path in files.values():
        classes = open_set(path).logits.shape[-1]
        if not first and about.labels is not None and len(about.labels) != classes:
            raise DataError(f"{path}: has {classes} classes, {ABOUT} names {len(about.labels)}: correct it")
        first, expected = first or path.name, expected or classes
        if classes != expected:
            raise DataError(f"{path}: has {classes} classes, {first} has {expected}: save those of one system")


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
        case ("shift", name, severity) if severity.isdecimal() and len(severity) < 5:
            return SetKey("shift", name, severity=int(severity))
        case _:
            return None
