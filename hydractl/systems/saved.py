"""Saved predictions: a folder with a file of logits for each data set, so that any method joins an evaluation.

    FOLDER/id.safetensors                labelled in-distribution samples; the one file that must be there
    FOLDER/calibration.safetensors       labelled, for temperature and prediction sets
    FOLDER/ood/[near/|far/]NAME.safetensors
    FOLDER/shift/NAME/SEVERITY.safetensors   labelled
    FOLDER/ood-score.safetensors         optional: what its own OOD score, named in predictions.json, was fitted to
    FOLDER/predictions.json              optional: classes, temperature, cost, OOD score, what computed them

Each file holds `logits`, [members, samples, classes] or [samples, classes] in float32 or float64, or in their
place `probabilities` of these shapes; and `labels` [samples], whole numbers. A failure predictor's `confidence`
[samples] may stand beside them, or in their place; then `correct` [samples] stands for the labels, true where what was
predicted is right. Systems are scored by their confidence where they have one. For OOD scores of features a file holds
`features` as well, [members, samples, width] or [samples, width], what the classifiers read. An .npz with the same
names does as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save

from hydractl.artifacts import PREDICTIONS, ArtifactFile, found_reference, json_text, read_artifact
from hydractl.checkpoint.calibration import Calibration, FittedOod, OodFit
from hydractl.checkpoint.output import make_folder, refuse_existing, refuse_other, write_bytes
from hydractl.checkpoint.tensors import in_memory, write_safetensors
from hydractl.data.files import files_below
from hydractl.data.labels import match_labels
from hydractl.data.reading import Modality
from hydractl.data.samples import Samples
from hydractl.errors import DataError, OutputError
from hydractl.model.answering import OodHead
from hydractl.ood.ood_scores import find_ood_score
from hydractl.ood.score import QUANTILES, Beside
from hydractl.schema import Checked, Items, Origin, parse_json, read_json
from hydractl.systems.saved_file import ENDINGS, HIDDEN, SAVED, read_answers, read_arrays
from hydractl.systems.system import (
    Cost,
    Description,
    EvaluationData,
    KnownLeak,
    Model,
    Network,
    OnBatch,
    Running,
    SetKey,
    System,
    plain,
)
from hydractl.tasks.task import Answers, Task
from hydractl.text import composed, distinct

ABOUT, FORMAT, VERSION = "predictions.json", "hydractl-predictions", 1
OWN_SCORE = "ood-score"  # the stem of its file
CONDITIONS = "conditions"  # the key in a file's header
REMEDY = "name another folder, or leave out `resume`"


def _possible(cost: Cost) -> Cost:
    if min(astuple(cost)) < 1:
        raise ValueError("every count should be at least 1")
    return cost


class About(ArtifactFile):
    """The form of predictions.json. A folder that was made elsewhere need not have one."""

    format: str = FORMAT
    version: int = VERSION
    id_name: Annotated[str, Checked(min_length=1)] = "id"
    labels: Items[str] | None = None
    temperature: Annotated[float, Checked(gt=0)] | None = None
    cost: Annotated[Cost, Checked(_possible)] | None = None
    networks: Items[Network] = ()
    leaks: Items[KnownLeak] = ()
    ood: OodFit | None = None


def read_about(source: str) -> About:
    """Returns the content of such a file, its networks as somebody in the current folder would name them."""
    about = read_artifact(source, About, FORMAT, VERSION)
    networks = (replace(each, reference=found_reference(each.reference, source)) for each in about.networks)
    return replace(about, networks=tuple(networks))


@dataclass(frozen=True)
class SavedPredictions:
    """A folder of saved predictions, which reads answers set by set; its files are looked at before the first use."""

    folder: Path
    modality: ClassVar[Modality | None] = None
    histories: ClassVar[Sequence[Mapping[str, Any]]] = ()
    draws: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def about(self) -> About:
        """The description of the predictions, empty if the folder has none."""
        path = self.folder / ABOUT
        return read_about(str(path)) if path.exists() else About()

    @cached_property
    def files(self) -> Mapping[SetKey, Path]:
        """The file of each set.

        Raises:
            DataError: no such folder, no file for the in-distribution set, or two files for one set.
            ArtifactError: predictions.json is damaged.
        """
        if not self.folder.is_dir():
            raise DataError(f"{self.folder}: is not a folder of predictions: it should hold id.safetensors or id.npz")
        files: dict[SetKey, Path] = {}
        below = [self.folder / file for file in sorted(map(Path, files_below(self.folder)))]
        for path in [file for file in below if file.suffix.lower() in ENDINGS]:
            if path.parent == self.folder and path.stem == OWN_SCORE:
                continue
            key = _key(path.relative_to(self.folder).with_suffix(""), self.about.id_name)
            if key is None:
                raise DataError(
                    f"{path}: is not a place for predictions: use id, calibration, ood/NAME or shift/NAME/SEVERITY"
                )
            if key in files:
                raise DataError(f"{path}: {files[key].name} holds predictions for the same set: remove one")
            files[key] = path
        if not any(key.role == "id" for key in files):
            raise DataError(f"{self.folder}: holds no id.safetensors or id.npz: add predictions of labelled data")
        order = ("id", "calibration", "ood", "shift")
        return dict(sorted(files.items(), key=lambda item: order.index(item[0].role)))

    @cached_property
    def sets(self) -> Mapping[SetKey, int]:
        """The number of samples of each set, after a look at each file.

        Raises:
            DataError: a file is damaged, or its classes are not those of the others.
        """
        return {key: len(answers) for key, answers in self._checked()}

    @cached_property
    def own_confidence(self) -> bool:
        """True if it holds a confidence of its own, which is its score whatever score is chosen."""
        key, path = next(iter(self.files.items()))
        return read_answers(path, key).confidence is not None

    def _checked(self) -> Iterator[tuple[SetKey, Answers]]:
        labels = self.labels
        expected: tuple[int | None, bool] | None = None
        for key, path in self.files.items():
            answers = read_answers(path, key)
            form = (
                None if answers.member_logits is None else answers.member_logits.shape[2],
                answers.confidence is not None,
            )
            if expected is None and labels is not None and form[0] not in (None, len(labels)):
                raise DataError(f"{path}: has {form[0]} classes, but {ABOUT} names {len(labels)}: correct it")
            expected = expected or form
            if form != expected:
                here, there = (
                    f"{n or 'no'} classes and {'a' if sure else 'no'} confidence" for n, sure in (form, expected)
                )
                raise DataError(f"{path}: has {here}, but the ID set has {there}: save the predictions of one system")
            yield key, answers

    @property
    def leaks(self) -> Sequence[KnownLeak]:
        return self.about.leaks

    def describe(self) -> Description:
        return Description(Model(f"{PREDICTIONS}{self.folder}"), self.about.networks)

    def conditions(self, _running: Running) -> dict[str, Any]:
        return {}

    def check(self, data: EvaluationData | None) -> None:
        """Raises DataError if a file is damaged, or the predictions are of other samples than those of the data."""
        if not self.sets or data is None:
            return
        for key, samples in data.sets.items():
            if (count := self.samples(key)) != len(samples):
                raise DataError(
                    f"{self.folder}: has predictions for {count} samples of {key.path}, but the data has "
                    f"{len(samples)}: save them again on this data"
                )
            if key.has_labels and self.labels is not None:
                self._check_labels(key, match_labels(samples, self.labels, data.match).labels)
            elif key.has_labels and samples.labels is not None and samples.labels.dtype.kind != "f":
                self._check_labels(key, samples.labels, named=False)

    def check_beside(self, other: SavedPredictions) -> None:
        """Raises DataError unless both are of the same samples, in order: differences are of each sample.

        Where there is no data to compare with, sets, numbers of samples and labels tell.
        """
        here, there = self._measured, other._measured
        if odd := sorted(here.keys() ^ there.keys()):
            has, lacks = (self, other) if odd[0] in here else (other, self)
            raise DataError(
                f"{lacks.folder}: has no predictions for {odd[0]}, which {has.folder} has: save the same sets of both"
            )
        for place, key in here.items():
            ours, theirs = read_answers(self.files[key], key), read_answers(other.files[there[place]], there[place])
            if len(ours) != len(theirs):
                raise DataError(
                    f"{self.folder}: has predictions for {len(ours)} samples of {place}, but {other.folder} for "
                    f"{len(theirs)}: save both on the same data"
                )
            if ours.truth is None or theirs.truth is None:
                continue
            if not _alike(ours.truth, theirs.truth, named=self.labels == other.labels):
                raise DataError(
                    f"{self.folder}: the labels saved for {place} are not those of {other.folder}, in order: save both "
                    "on the same data"
                )

    @property
    def _measured(self) -> dict[str, SetKey]:
        """The sets that are measured, by place."""
        return {key.path: key for key in self.files if key.role != "calibration"}

    def _check_labels(self, key: SetKey, labels: NDArray[np.int64] | None, named: bool = True) -> None:
        saved = read_answers(self.files[self._own(key)], key)
        if saved.member_logits is None:
            return  # whoever saved a confidence alone says what is right
        if saved.truth is None or labels is None or not _alike(saved.truth, labels, named=named):
            raise DataError(
                f"{self.folder}: the labels saved for {key.path} are not those of the data, in order: save the "
                "predictions again on this data"
            )

    def on(self, _data: EvaluationData | None, _running: Running) -> SavedPredictions:
        return self

    def serve(self) -> None:
        """Does nothing: the leading process reads them alone."""

    def dismiss(self) -> None:
        """Does nothing either."""

    def profiles(self, _samples: Samples) -> None:
        """Returns None: they keep no profiles."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        return None if self.about.labels is None else distinct(self.about.labels)

    @property
    def task(self) -> Task:
        return SAVED

    @property
    def calibration(self) -> Calibration:
        fit = self.about.ood
        return Calibration(self.about.temperature, ood=None if fit is None else FittedOod(fit, {}))

    @property
    def cost(self) -> Cost | None:
        return self.about.cost

    @cached_property
    def ood_head(self) -> OodHead | None:
        if self.about.ood is None:
            return None
        # The baseline counts classes that nothing here can be compared with; a monitor alone reads it.
        fit, path = replace(self.about.ood, baseline=None), self.folder / f"{OWN_SCORE}.safetensors"
        row = find_ood_score(fit.score)
        tensors = {name: torch.from_numpy(array) for name, array in read_arrays(path, row.stored).items()}
        if QUANTILES in tensors and row.axes and (row.reads == "layers" or not row.axes.keys() & tensors.keys()):
            return OodHead(fit, {QUANTILES: tensors[QUANTILES].double()})  # the scores lie beside the logits
        shapes = (tensors[name].shape for name, axes in row.axes.items() if axes.startswith("MD") and name in tensors)
        members, width = (*next(shapes, (1, 0)), 0, 0)[:2]
        fitted = FittedOod(fit, {name: in_memory(tensor) for name, tensor in tensors.items()})
        fitted.verify(str(path), {"M": members, "C": len(self.labels or ()), "D": width})
        return OodHead.of(fitted, "cpu", torch.float64)

    @property
    def scores_itself(self) -> bool:
        return self.ood_head is not None and not self.ood_head.computes

    def samples(self, key: SetKey) -> int:
        return self.sets[self._own(key)]

    def answers(self, key: SetKey, reads: Beside, on_batch: OnBatch) -> Answers:
        """Returns the answers to a set."""
        path = self.files[self._own(key)]
        answers = read_answers(path, key, reads)
        if key.has_labels and answers.truth is None and answers.correct is None:
            lacking = "correct, true or false" if answers.member_logits is None else "labels, a whole number"
            raise DataError(f"{path}: does not say what is right: add an array {lacking} for each sample")
        on_batch(self.samples(key))
        return replace(answers, classes=self.labels, calibration=self.calibration)

    def _own(self, key: SetKey) -> SetKey:
        """Returns the key of the same set here; its group or the name of the ID set may differ."""
        for candidate in self.sets:
            named_alike = candidate.role in ("id", "calibration") or composed(candidate.name) == composed(key.name)
            if candidate.role == key.role and candidate.severity == key.severity and named_alike:
                return candidate
        raise DataError(f"{self.folder}: holds no predictions for {key.path}: add {key.path}.safetensors or .npz")


def _alike(labels: NDArray[Any], others: NDArray[Any], *, named: bool) -> bool:
    """Returns whether the labels of all samples are the same, at least up to new names for them.

    Args:
        named: whether equal numbers stand for equal names.
    """
    if named or labels.ndim > 1 or others.ndim > 1:
        return not named or np.array_equal(labels, others)
    pairs = np.unique(np.stack([labels, others]), axis=1).shape[1]
    return pairs == len(np.unique(labels)) == len(np.unique(others))


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


@dataclass(frozen=True, eq=False)
class SavedAnswers:
    """Answers of a predictor that are saved, and read instead of computed where they are saved already."""

    predictor: System
    folder: Path
    about: Mapping[str, Any]  # the content of predictions.json, see `about_json`
    head: OodHead | None  # the OOD score of the system's own that the predictions keep, if it is scored by one
    # The conditions of a set's answers, also stored in its file.
    conditions: Callable[[SetKey], Mapping[str, Any]]
    resume: bool  # whether what is there already counts
    force: bool

    def __call__(self, key: SetKey, reads: Beside, on_batch: OnBatch) -> Answers:
        path, conditions = self.folder / f"{key.path}.safetensors", self.conditions(key)
        if self.resume and path.exists():
            with safe_open(path, framework="numpy") as file:
                saved = parse_json((file.metadata() or {}).get(CONDITIONS, "{}"), Origin(str(path), DataError, REMEDY))
            refuse_other(Origin(str(path), OutputError, REMEDY), saved.fields, conditions)
            system = self.predictor
            answers = read_answers(path, key, reads, system.task)
            on_batch(len(answers))
            return replace(answers, classes=system.labels, calibration=system.calibration)
        make_folder(path.parent, parents=True)
        refuse_existing(path, self.force)
        answers = self.predictor.answers(key, reads, on_batch)
        write_answers(path, answers, {"format": "pt", CONDITIONS: json.dumps(conditions)}, self.force)
        return answers

    def start(self) -> None:
        """Writes predictions.json, and the numbers of the system's own OOD score.

        Raises:
            OutputError: the folder holds predictions already and they are not to be replaced, or not of this system.
        """
        about, text = self.folder / ABOUT, json_text(self.about, self.folder)
        if self.resume and about.exists():
            saved = read_json(about, Origin(str(about), DataError, REMEDY)).fields
            refuse_other(Origin(str(about), OutputError, REMEDY), saved, json.loads(text))
        else:
            write_bytes(about, f"{text}\n".encode(), self.force)
        if self.head is not None:
            # A score of every layer is saved with the answers: of its numbers, only the quantiles are needed again.
            complete, kept = self.head.row.reads != "layers", dict(self.head.named_buffers())
            tensors = {name: kept[name].cpu().float() for name in (kept if complete else (QUANTILES,))}
            path = self.folder / f"{OWN_SCORE}.safetensors"
            write_bytes(path, save(tensors, {"format": "pt"}), self.force or self.resume)


def about_json(id_name: str, predictor: System, made_of: Description, head: OodHead | None) -> dict[str, Any]:
    """Returns the content of predictions.json.

    Args:
        id_name: the name of the in-distribution set in reports.
        head: the OOD score of its own that it is scored by, if any.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "id_name": id_name,
        "labels": None if predictor.labels is None else list(predictor.labels),
        "temperature": predictor.calibration.divisor,
        "cost": plain(predictor.cost),
        "networks": plain(made_of.networks),
        **({"leaks": plain(made_of.leaks)} if made_of.leaks else {}),
        **({"ood": plain(head.fit)} if head is not None else {}),
    }


def write_answers(path: Path, answers: Answers, metadata: dict[str, str], force: bool = False) -> None:
    """Writes the answers to one set as FOLDER/SET.safetensors."""
    arrays = {
        "logits": answers.member_logits,
        "features": answers.features,
        "labels": answers.truth,
        "confidence": answers.confidence,
        "ood_score": answers.ood_score,
        "places": answers.places,
        **{f"{HIDDEN}{number}": layer for number, layer in enumerate(answers.hidden)},
    }
    tensors = {name: in_memory(torch.from_numpy(array)) for name, array in arrays.items() if array is not None}
    write_safetensors(path, tensors, metadata, force)


def answer_conditions(
    made_of: Mapping[str, Any], data: EvaluationData, labels: Sequence[str] | None, key: SetKey
) -> dict[str, Any]:
    """Returns everything that determines a system's answers on a set, as plain JSON."""
    samples = data.sets[key]
    labelling = {"match_labels": data.match, "labels": samples.label_names} if key.has_labels else {}
    return {**made_of, "classes": labels, "data": samples.identity(), **labelling}
