"""The data a run trains on and validates with: opened, divided, labelled in the model's numbering, remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data import seen
from hydractl.data.columns import Columns, Modality
from hydractl.data.labels import match_labels
from hydractl.data.sources import Samples, open_data
from hydractl.data.spec import parse_data_spec
from hydractl.errors import DataError, OptionError
from hydractl.training.classifier import with_new_classifier
from hydractl.training.pairs import open_pairs
from hydractl.training.recipe import Recipe

REMEMBERED = 20_000  # samples whose hashes a file carries at most
SPLIT_SEED = 0  # not the run's: members of one ensemble are validated on the same samples


Match = Literal["name", "index"]


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Labelled samples to train on, and some to validate with."""

    train: Samples
    validation: Samples | None = None


@dataclass(frozen=True)
class Picked(Sequence[Any]):
    """Some of the inputs of a data set, read when asked for."""

    inputs: Sequence[Any]
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self.inputs[int(position)] for position in self.positions[index]]
        return self.inputs[int(self.positions[index])]


def open_training_data(
    modality: Modality | Literal["pair"],
    train: str,
    validation: str | None,
    val_split: int | None,
    columns: Columns | None = None,
    limit: int | None = None,
) -> TrainingData:
    """The training data a user names, and validation data: a source of its own, or samples held out of training.

    With `modality` "pair", samples are pairs of an image and a text.

    Raises:
        DataError: see `open_data`.
        OptionError: both kinds of validation data, or nothing left to train on.
    """
    if validation is not None and val_split is not None:
        raise OptionError("--val-data and --val-split both name validation data: leave one out")
    samples = _open(train, modality, columns, limit)
    if val_split is not None:
        return TrainingData(*split_off(samples, val_split))
    if validation is None:
        return TrainingData(samples)
    return TrainingData(samples, _open(validation, modality, columns, limit))


def _open(text: str, modality: Modality | Literal["pair"], columns: Columns | None, limit: int | None) -> Samples:
    spec = parse_data_spec(text)
    return open_pairs(spec, columns, limit) if modality == "pair" else open_data(spec, modality, columns, limit)


def split_off(samples: Samples, count: int) -> tuple[Samples, Samples]:
    """The samples without `count` of them drawn evenly, and those: the same ones whatever the seed of a run.

    Raises:
        OptionError: nothing would be left to train on.
    """
    if count >= len(samples):
        raise OptionError(
            f"--val-split {count}: {samples.name} has {len(samples)} samples, some must be left to train on"
        )
    order = np.random.default_rng(SPLIT_SEED).permutation(len(samples))
    return take(samples, np.sort(order[count:])), take(samples, np.sort(order[:count]))


def take(samples: Samples, positions: NDArray[np.int64]) -> Samples:
    """The samples at some positions, in that order."""
    return replace(
        samples,
        inputs=Picked(samples.inputs, positions),
        labels=None if samples.labels is None else samples.labels[positions],
        hashes=None if samples.hashes is None else samples.hashes[positions],
    )


def fit_labels(
    checkpoint: Checkpoint, data: TrainingData, recipe: Recipe, match: Match, seed: int
) -> tuple[Checkpoint, TrainingData]:
    """The checkpoint, with a new classifier where the recipe says so, and the data with labels in its numbering.

    Raises:
        DataError: labels are missing or do not match; says how a new classifier is asked for.
    """
    if recipe.loss == "contrastive":
        if checkpoint.spec.task != "zero-shot":
            raise OptionError(f"{checkpoint.name}: is no zero-shot model: a contrastive loss needs two towers")
        return checkpoint, data
    if recipe.new_classifier != "no":
        labels = _label_names(data.train)
        checkpoint = with_new_classifier(checkpoint, labels, recipe.new_classifier, seed)
    if checkpoint.labels is None:
        raise OptionError(f"{checkpoint.name}: is a zero-shot model: fine-tune it with --recipe clip-lit")
    try:
        train = match_labels(data.train, checkpoint.labels, match)
    except DataError as error:
        raise DataError(f"{error}; or train a new classifier with --new-classifier zeros") from error
    validation = None if data.validation is None else match_labels(data.validation, checkpoint.labels, match)
    return checkpoint, TrainingData(train, validation)


def remembered(samples: Samples) -> dict[str, Any]:
    """What an evaluation refuses; of a large set as many as one can hash without a second pass over everything."""
    if len(samples) <= REMEMBERED:
        return seen.sketch(samples.content_hashes())
    drawn = np.sort(np.random.default_rng(0).permutation(len(samples))[:REMEMBERED])
    return seen.sketch(take(samples, drawn).content_hashes())


def _label_names(samples: Samples) -> tuple[str, ...]:
    if samples.labels is None:
        raise DataError(f"{samples.name}: {samples.label_problem or 'holds no labels'}")
    return samples.label_names or tuple(str(label) for label in range(int(samples.labels.max()) + 1))


def digest(samples: Samples) -> str:
    """Tells one set of training labels from another; images are not decoded for it."""
    labels = samples.labels if samples.labels is not None else np.array([len(samples)])
    return hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()
