"""The batches a run trains on and validates with, dealt out to processes and forward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.batching import Batch, Batches, made_by_workers, make_batch, make_batches, readable
from hydractl.data.preprocess import Preprocessor
from hydractl.data.samples import Samples
from hydractl.errors import DataError, OptionError
from hydractl.training.accelerator import Workplace
from hydractl.training.augment import augmented, build_augmentation, training_preprocessor
from hydractl.training.conditions import Training
from hydractl.training.losses import outliers_of_a_step
from hydractl.training.order import AUGMENTATION, Division, Grouping, derived_seed, outlier_seeds, sample_at
from hydractl.training.recipe import Recipe
from hydractl.training.request import Seeds

VALIDATION_BATCH = 64


def training_batches(checkpoint: Checkpoint, training: Training, place: Workplace) -> list[ShuffledSamples]:
    """Returns what one process trains on: labelled samples, and outliers if there are any."""
    recipe, data, accelerator = training.recipe, training.data, place.accelerator
    preprocessor = training_preprocessor(checkpoint, recipe)
    augmentation = build_augmentation(recipe, checkpoint.spec)

    def of(samples: Samples, batch: int, seeds: Seeds) -> ShuffledSamples:
        return ShuffledSamples(
            samples,
            preprocessor,
            _divide(batch, recipe, place.execution.batch_size, accelerator.num_processes),
            seeds,
            augmentation=augmentation,
            rank=accelerator.process_index,
            workers=place.execution.workers,
            grouping=length_grouping(samples, preprocessor, recipe.length_window, batch),
        )

    parts = [of(data.train, recipe.batch, training.seeds)]
    if data.outliers is not None:
        parts.append(of(data.outliers, outliers_of_a_step(recipe), outlier_seeds(training.seeds)))
    return parts


def length_grouping(samples: Samples, preprocessor: Preprocessor, window: int, batch: int) -> Grouping | None:
    """Returns which texts share a step of `batch`: those of as many tokens, among the samples of `window` steps."""
    if not window or samples.modality != "text" or preprocessor.text is None:
        return None
    # Characters are known without a tokenizer, but steps made by them hold 1.3 times as much padded text on SST-2.
    return Grouping(preprocessor.text.lengths(samples.inputs)[0], batch, window)


def validation_batches(checkpoint: Checkpoint, training: Training, place: Workplace) -> Batches | None:
    """Returns what one process computes of a validation; None without validation data."""
    if training.data.validation is None:
        return None
    return make_batches(
        training.data.validation,
        training_preprocessor(checkpoint, training.recipe),
        place.execution.batch_size or VALIDATION_BATCH,
        workers=place.execution.workers,
        rank=place.accelerator.process_index,
        world_size=place.accelerator.num_processes,
    )


def _divide(batch: int, recipe: Recipe, batch_size: int | None, world_size: int) -> Division:
    if batch < world_size:
        raise OptionError(f"a step of {batch} samples cannot be divided among {world_size} processes")
    share = ceil(batch / world_size)
    passes = ceil(share / min(batch_size or share, share))
    if recipe.loss == "contrastive" and recipe.batch % (world_size * passes):
        raise OptionError(
            f"{recipe.batch} pairs a step cannot be dealt out evenly to {world_size} processes, {passes} passes each: "
            "choose another `batch_size`, or `settings` batch=..."
        )
    return Division(batch, world_size, passes)


@dataclass(frozen=True, eq=False)
class ShuffledSamples(Dataset[Batch | DataError]):
    """The training batches of one process, numbered by forward pass from the first step on."""

    samples: Samples
    preprocessor: Preprocessor
    division: Division
    seeds: Seeds
    augmentation: Callable[[Any], Any] | None = None
    rank: int = 0
    workers: int = 0
    grouping: Grouping | None = None

    def from_step(self, step: int, end: int) -> Iterator[Batch]:
        """Yields the batches of the steps from `step` up to `end`, `passes` for each; raises DataError."""
        wanted = range(step * self.division.passes, end * self.division.passes)
        made: Any = map(self.__getitem__, wanted)
        if self.workers:
            made = made_by_workers(self, self.workers, wanted)
        return map(readable, made)

    def __getitem__(self, number: int) -> Batch | DataError:
        """Returns one batch, or what is wrong with it."""
        places = self.division.places_of(number, self.rank)
        at = [sample_at(self.seeds.order, place, len(self.samples), self.grouping) for place in places]
        return make_batch(self.preprocessor, self.samples, map(self._input, places, at), np.array(at, dtype=np.int64))

    def _input(self, place: int, position: int) -> Any:
        sample = self.samples.inputs[position]
        if self.augmentation is None:
            return sample
        # Seeded by its place in the order, an image looks the same whoever loads it.
        return augmented(sample, self.augmentation, derived_seed(self.seeds.noise, AUGMENTATION, place))


def steps(parts: Sequence[ShuffledSamples], first: int, end: int) -> Iterator[list[Batch]]:
    """Yields what one process takes in each step: the forward passes of every part, one part after the other."""
    coming = [part.from_step(first, end) for part in parts]
    for _ in range(first, end):
        yield [
            batch
            for part, batches in zip(parts, coming, strict=True)
            for batch in islice(batches, part.division.passes)
        ]
