"""The batches a run trains on and validates with, dealt out to processes and forward passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, cast

from accelerate import Accelerator

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import ModelSpec
from hydractl.data.batches import Batches, make_batches
from hydractl.data.preprocessing import Preprocessor, preprocessor_from_json
from hydractl.data.samples import Samples
from hydractl.errors import OptionError
from hydractl.training.augment import build_augmentation
from hydractl.training.data import Streamed, TrainingData
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
    preprocessor = training_preprocessor(checkpoint, recipe)
    augmentation = _augmentation(recipe, checkpoint.spec)

    def of(samples: Samples | Streamed, batch: int, seeds: Seeds) -> TrainingBatches:
        division = _divide(batch, recipe, machine.batch_size, accelerator.num_processes)
        preparation = Preparation(preprocessor, augmentation, seeds)
        rank, workers = accelerator.process_index, machine.workers
        if not isinstance(samples, Samples):
            return ShuffledStream(samples, preparation, division, rank, workers)
        grouping = length_grouping(samples, preprocessor, recipe.length_window, batch)
        return ShuffledSamples(samples, preparation, division, rank, workers, grouping)

    labelled = of(data.train, recipe.batch, seeds)
    if data.outliers is None:
        return labelled
    return BesideOutliers(labelled, of(data.outliers, outliers_of_a_step(recipe), seeds.of_outliers()))


def length_grouping(samples: Samples, preprocessor: Preprocessor, window: int, batch: int) -> Grouping | None:
    """Which texts share a step of `batch`: those of as many tokens, among the samples of `window` steps."""
    if not window or samples.modality != "text" or preprocessor.text is None:
        return None
    # Characters are known without a tokenizer, but steps made by them hold 1.3 times as much padded text on SST-2.
    return Grouping(preprocessor.text.lengths(samples.inputs)[0], batch, window)


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
