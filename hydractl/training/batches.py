"""The batches a run trains on and validates with, dealt out to processes and forward passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, cast

import numpy as np
from accelerate import Accelerator

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import ModelSpec
from hydractl.data.batches import Batches, make_batches
from hydractl.data.preprocessing import Preprocessor, preprocessor_from_json
from hydractl.data.samples import Samples
from hydractl.errors import OptionError
from hydractl.training.augment import build_augmentation
from hydractl.training.data import TrainingData
from hydractl.training.order import (
    Division,
    Grouping,
    Preparation,
    Seeds,
    ShuffledSamples,
    ShuffledStream,
    TrainingBatches,
)
from hydractl.training.outliers import BesideOutliers, outliers_of_a_step
from hydractl.training.pairs import PairAugmentation, PairPreprocessor
from hydractl.training.recipe import Recipe

VALIDATION_BATCH = 64


@dataclass(frozen=True)
class Machine:
    """How a run is carried out, none of which changes its result beyond rounding.

    `batch_size` samples at most go through the network at once on each device; None for as many as a step needs.
    """

    folder: Path
    batch_size: int | None = None
    workers: int = 0
    save_every: int | None = None
    keep: int = 2
    resume: bool = False


def training_batches(
    data: TrainingData,
    checkpoint: Checkpoint,
    recipe: Recipe,
    seeds: Seeds,
    machine: Machine,
    accelerator: Accelerator,
) -> TrainingBatches:
    """What one process trains on.

    Raises:
        OptionError: a step cannot be dealt out to so many processes and passes.
    """
    preparation = Preparation(training_preprocessor(checkpoint, recipe), _augmentation(recipe, checkpoint.spec), seeds)
    rank, workers = accelerator.process_index, machine.workers
    division = _divide(recipe.batch, recipe, machine.batch_size, accelerator.num_processes)
    if not isinstance(data.train, Samples):
        labelled: TrainingBatches = ShuffledStream(data.train, preparation, division, rank, workers)
    else:
        grouping = length_grouping(data.train, recipe, recipe.batch)
        labelled = ShuffledSamples(data.train, preparation, division, rank, workers, grouping)
    if data.outliers is None:
        return labelled
    count = outliers_of_a_step(recipe)
    division = _divide(count, recipe, machine.batch_size, accelerator.num_processes)
    preparation, grouping = (
        replace(preparation, seeds=seeds.of_outliers()),
        length_grouping(data.outliers, recipe, count),
    )
    return BesideOutliers(labelled, ShuffledSamples(data.outliers, preparation, division, rank, workers, grouping))


def length_grouping(samples: Samples, recipe: Recipe, batch: int) -> Grouping | None:
    """Which texts share a step, by their characters: as good as tokens for this, and known at once."""
    if not recipe.length_window or samples.modality != "text":
        return None
    lengths = [len(text) if isinstance(text, str) else sum(map(len, text)) for text in samples.inputs]
    return Grouping(np.array(lengths), batch, recipe.length_window)


def validation_batches(
    samples: Samples, preprocessor: Preprocessor, machine: Machine, accelerator: Accelerator
) -> Batches:
    """What one process computes of a validation."""
    return make_batches(
        samples,
        preprocessor,
        machine.batch_size or VALIDATION_BATCH,
        workers=machine.workers,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
    )


def training_preprocessor(checkpoint: Checkpoint, recipe: Recipe) -> Preprocessor:
    """The checkpoint's preprocessing: of pairs where the loss is contrastive, of texts up to the recipe's length."""
    preprocessor = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config)
    if recipe.loss == "contrastive":
        # All that batching asks of a preprocessor is what this one has.
        return cast("Preprocessor", PairPreprocessor(preprocessor))
    text = preprocessor.text
    if text is None or not recipe.max_length:
        return preprocessor
    return replace(
        preprocessor, text=replace(text, max_length=min(recipe.max_length, text.max_length or recipe.max_length))
    )


def _augmentation(recipe: Recipe, spec: ModelSpec) -> Callable[[Any], Any] | None:
    augmentation = build_augmentation(recipe, spec)
    return PairAugmentation(augmentation) if augmentation and recipe.loss == "contrastive" else augmentation


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
