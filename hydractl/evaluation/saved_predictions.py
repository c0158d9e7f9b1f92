"""Saved predictions: a folder with a file of logits for each data set, so that any method joins an evaluation.

    FOLDER/id.safetensors                labelled in-distribution samples; the one file that must be there
    FOLDER/calibration.safetensors       labelled, for temperature and prediction sets
    FOLDER/ood/[near/|far/]NAME.safetensors
    FOLDER/shift/NAME/SEVERITY.safetensors   labelled
    FOLDER/classifier.safetensors        optional: what makes logits of features, for the OOD scores vim and react
    FOLDER/predictions.json              optional: classes, temperature, cost, what computed them

Each file holds `logits`, [members, samples, classes] or [samples, classes] in float32 or float64, or in their
place `probabilities` of these shapes; and `labels` [samples], whole numbers. A failure predictor's `confidence`
[samples] may stand beside them, or in their place; then `correct` [samples] stands for the labels, true where what was
predicted is right. Systems are scored by their confidence where they have one. For OOD scores of features a file holds
`features` as well, [members, samples, width] or [samples, width], what the classifiers read, and the classifier's file
`weight`, [members, classes, width], and `bias`, [members, classes]. An .npz with the same names does as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from hydractl.artifacts import ArtifactFile, found_reference, read_artifact
from hydractl.data.files import files_below
from hydractl.data.labels import match_labels
from hydractl.data.reading import Modality
from hydractl.errors import DataError, OptionError
from hydractl.evaluation.results import Cost, Description, KnownLeak, Model, Network
from hydractl.evaluation.saved_file import ENDINGS, SavedSet, open_set, read_tensors
from hydractl.evaluation.sets import EvaluationData, SetKey
from hydractl.evaluation.systems import AnsweredBatch, Classifier, Running
from hydractl.schema import Items

PREFIX = "predictions:"
ABOUT, FORMAT, VERSION = "predictions.json", "hydractl-predictions", 1
CLASSIFIER = "classifier"  # the stem of its file
CHUNK = 2**21  # logits read at a time


def _possible(cost: Cost) -> Cost:
    if min(count for count in astuple(cost) if count is not None) < 1:
        raise ValueError("every count should be at least 1")
    return cost


class About(ArtifactFile):
    """The form of predictions.json. A folder that was made elsewhere need not have one."""

    format: str = FORMAT
    version: int = VERSION
    id_name: Annotated[str, Field(min_length=1)] = "id"
    labels: Items[str] | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    cost: Annotated[Cost, AfterValidator(_possible)] | None = None
    networks: Items[Network] = ()
    leaks: Items[KnownLeak] = ()


def read_about(source: str) -> About:
    """Returns the content of such a file, its networks as somebody in the current folder would name them.

    Raises:
        ArtifactError: it is damaged, or of another format or version.
    """
    about = read_artifact(source, About, FORMAT, VERSION)
    networks = (replace(each, reference=found_reference(each.reference, source)) for each in about.networks)
    return about.model_copy(update={"networks": tuple(networks)})


@dataclass(frozen=True, eq=False)
class SavedPredictions:
    """An open folder of saved predictions, which reads answers set by set."""

    folder: Path
    files: Mapping[SetKey, Path]
    about: About = field(default_factory=About)
    modality: ClassVar[Modality | None] = None
    histories: ClassVar[Sequence[Mapping[str, Any]]] = ()
    draws: ClassVar[bool] = False

    @property
    def sets(self) -> Mapping[SetKey, int]:
        return {key: self.samples(key) for key in self.files}

    @property
    def leaks(self) -> Sequence[KnownLeak]:
        return self.about.leaks

    def describe(self) -> Description:
        return Description(Model(f"{PREFIX}{self.folder}"), self.about.networks)

    def conditions(self, _running: Running) -> dict[str, Any]:
        return {}

    @property
    def ood_head(self) -> None:
        """Always None, since saved answers bring no score."""

    @property
    def confident(self) -> bool:
        return any(key.role == "id" and self._open(key).confidence is not None for key in self.files)

    def check_data(self, data: EvaluationData) -> None:
        for key, samples in data.sets.items():
            if (found := self.samples(key)) != len(samples):
                raise DataError(
                    f"{self.folder}: has predictions for {found} samples of {key.path}, the data has {len(samples)}: "
                    "save them again on this data"
                )
            if key.has_labels and self.labels is not None:
                self._check_labels(key, match_labels(samples, self.labels, data.match).labels)

    def _check_labels(self, key: SetKey, labels: NDArray[np.int64] | None) -> None:
        saved = self._open(key)
        if saved.labels is None and saved.logits is None:
            return  # whoever saved a confidence alone says what is right
        if labels is None or saved.labels is None or (saved.labels.numpy() != labels).any():
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
        return self._open(key).samples

    def answers(self, key: SetKey, features: bool = False) -> Iterator[AnsweredBatch]:
        saved = self._open(key)
        alone = saved.logits is None
        if key.has_labels and (saved.correct if alone else saved.labels) is None:
            remedy = "`correct`: add true or false, one" if alone else "labels: add `labels`, one whole number"
            raise DataError(f"{saved.path}: holds no {remedy} per sample")
        if features and saved.features is None:
            raise DataError(
                f"{saved.path}: holds no features: save the predictions again by an evaluation with this OOD score, "
                "add `features`, or choose a score that reads logits"
            )
        rows = saved.features if features else None
        widths = [part.shape[0] * part.shape[-1] for part in (saved.logits, rows) if part is not None]
        for positions in torch.arange(saved.samples).split(max(1, CHUNK // max(widths, default=1))):
            at = slice(int(positions[0]), int(positions[-1]) + 1)
            yield AnsweredBatch(
                None if saved.logits is None else saved.logits[at],
                saved.labels_of(at) if key.has_labels else None,
                positions,
                features=None if rows is None else rows[at],
                confidence=None if saved.confidence is None else saved.confidence[at],
                correct=saved.correct[at] if key.has_labels and saved.correct is not None else None,
            )

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
    """Returns the saved predictions that `predictions:FOLDER` names; None for other texts.

    Raises:
        OptionError: no folder is named.
    """
    if not text.startswith(PREFIX):
        return None
    if text == PREFIX:
        raise OptionError(f"{text}: names no folder: write predictions:FOLDER")
    return PredictionsSpec(Path(text.removeprefix(PREFIX)))


def read_predictions(folder: Path) -> SavedPredictions:
    """Returns the saved predictions in a folder.

    Raises:
        DataError: no such folder, no file for the in-distribution set, or two files for one set.
        ArtifactError: predictions.json is damaged.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: is no folder of predictions: it should hold id.safetensors or id.npz")
    about = read_about(str(folder / ABOUT)) if (folder / ABOUT).exists() else About()
    files: dict[SetKey, Path] = {}
    for path in [folder / file for file in files_below(folder, ENDINGS)]:
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
    """Raises DataError if a set does not hold what the first, the in-distribution set, holds."""
    first: SavedSet | None = None
    for path in files.values():
        found = open_set(path)
        first = first or found
        if found is first and about.labels is not None and found.classes not in (None, len(about.labels)):
            raise DataError(f"{path}: has {found.classes} classes, {ABOUT} names {len(about.labels)}: correct it")
        if found.classes != first.classes:
            here, there = (f"{one.classes or 'no'} classes" for one in (found, first))
            raise DataError(f"{path}: has {here}, {first.path.name} has {there}: save those of one system")
        if (found.confidence is None) != (first.confidence is None):
            lacking, other = (path, first.path) if found.confidence is None else (first.path, path)
            raise DataError(f"{lacking}: holds no `confidence`, {other.name} does: save it of every set")


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
