"""The processes that train together, by accelerate, and the batches that each trains on and validates with."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from PIL import Image
from torch.utils.data import Dataset

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import ImageEmbeddings
from hydractl.data.batching import Batch, Batches, made_by_workers, make_batch, make_batches, readable
from hydractl.data.images import with_channels
from hydractl.data.preprocess import Preprocessor, preprocessor_from_json
from hydractl.data.samples import Samples
from hydractl.errors import DataError, OptionError
from hydractl.run_options import Precision
from hydractl.training.conditions import Training
from hydractl.training.losses import outliers_of_a_step
from hydractl.training.recipe import Recipe
from hydractl.training.request import Execution, Seeds
from hydractl.training.trainset import AUGMENTATION, Grouping, Pair, SplitOrder, derived_seed, outlier_seeds, sample_at

DEVICE = "ACCELERATE_TORCH_DEVICE"
VALIDATION_BATCH = 64


@dataclass(frozen=True, eq=False)
class Workplace:
    """A place to train: the folder of the run's log and states, the processes beside this one, and how to run."""

    folder: Path
    accelerator: Accelerator
    execution: Execution = Execution()


@contextmanager
def training_process(device: torch.device, precision: Precision = "no") -> Iterator[Accelerator]:
    """Yields an accelerator; when the block ends, random states are as before.

    Args:
        device: of a single process; under torchrun on GPUs each process takes its own.

    Raises:
        OptionError: the device cannot compute in that precision.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), _fresh_settings(device):
        try:
            accelerator = Accelerator(cpu=device.type == "cpu", mixed_precision=precision)
        except ValueError as error:
            raise OptionError(f"`precision` {precision}: {error}") from error
        yield accelerator


@contextmanager
def _fresh_settings(device: torch.device) -> Iterator[None]:
    """Lets one process choose its device and precision, which accelerate keeps for the whole process."""
    if "LOCAL_RANK" in os.environ:
        yield
        return
    AcceleratorState._reset_state(reset_partial_state=True)
    os.environ[DEVICE] = str(device)
    try:
        yield
    finally:
        os.environ.pop(DEVICE, None)
        AcceleratorState._reset_state(reset_partial_state=True)


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


def _divide(batch: int, recipe: Recipe, batch_size: int | None, world_size: int) -> SplitOrder:
    if batch < world_size:
        raise OptionError(
            f"a step of {batch} samples cannot be divided evenly among {world_size} processes: choose a multiple"
        )
    share = ceil(batch / world_size)
    # No pass may be empty, so that one may hold a sample more than `batch_size`.
    passes = min(ceil(share / min(batch_size or share, share)), batch // world_size)
    if recipe.loss == "contrastive" and recipe.batch % (world_size * passes):
        raise OptionError(
            f"{recipe.batch} pairs per step cannot be divided evenly among {world_size} processes, {passes} passes "
            "each: choose another `batch_size`, or set batch in `settings`"
        )
    return SplitOrder(batch, world_size, passes)


@dataclass(frozen=True, eq=False)
class ShuffledSamples(Dataset[Batch | DataError]):
    """The training batches of one process, numbered by forward pass from the first step on."""

    samples: Samples
    preprocessor: Preprocessor
    division: SplitOrder
    seeds: Seeds
    augmentation: Callable[[Any], Any] | None = None
    rank: int = 0
    workers: int = 0
    grouping: Grouping | None = None

    def from_step(self, step: int, end: int) -> Iterator[Batch]:
        """Yields the batches of the steps from `step` up to `end`, `passes` for each; raises DataError."""
        numbers = range(step * self.division.passes, end * self.division.passes)
        made: Any = map(self.__getitem__, numbers)
        if self.workers:
            made = made_by_workers(self, self.workers, numbers)
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


def training_preprocessor(checkpoint: Checkpoint, recipe: Recipe) -> Preprocessor:
    """Returns the checkpoint's preprocessing, with the recipe's text length."""
    preprocessor = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config)
    text = preprocessor.text
    if text is None or not recipe.max_length:
        return preprocessor
    most = min(recipe.max_length, text.max_length or recipe.max_length)
    return replace(preprocessor, text=replace(text, max_length=most))


def _augmented(image: Image.Image, channels: int, pad_crop: int, transform: Any) -> Image.Image:
    """Returns an image, in as many channels as the model has, after one random draw."""
    from torchvision.transforms import v2

    image = with_channels(image, channels)
    if pad_crop:
        image = v2.RandomCrop((image.height, image.width), pad_crop)(image)
    return transform(image)


def _augmented_pair(pair: Pair, of_image: Callable[[Image.Image], Image.Image]) -> Pair:
    return of_image(pair[0]), pair[1]


def build_augmentation(recipe: Recipe, spec: ModelSpec) -> Callable[[Any], Any] | None:
    """Returns the recipe's augmentation for a model; None if it has none, or the model takes no images.

    A random resized crop comes out in the size the model takes, so that its preprocessing only normalises.
    """
    embeddings = next((t.embeddings for t in spec.towers if isinstance(t.embeddings, ImageEmbeddings)), None)
    if embeddings is None:
        return None
    from torchvision.transforms import InterpolationMode, v2

    steps: list[Any] = []
    if recipe.crop_scale:
        size, (smallest, largest) = list(embeddings.image_size), recipe.crop_scale
        steps.append(v2.RandomResizedCrop(size, (smallest, largest), interpolation=InterpolationMode.BICUBIC))
    if recipe.flip:
        steps.append(v2.RandomHorizontalFlip())
    if recipe.randaugment:
        steps.append(v2.RandAugment(*recipe.randaugment))
    if not steps and not recipe.pad_crop:
        return None
    transform = v2.Compose(steps or [v2.Identity()])
    of_image = partial(_augmented, channels=embeddings.channels, pad_crop=recipe.pad_crop, transform=transform)
    return partial(_augmented_pair, of_image=of_image) if recipe.loss == "contrastive" else of_image


def augmented(sample: Any, augmentation: Callable[[Any], Any], seed: int) -> Any:
    """Returns a sample after one random draw that follows from the seed; random states stay as they are."""
    state, python_state = torch.get_rng_state(), random.getstate()
    # torch.manual_seed takes many times longer, since it notes its caller for every GPU.
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    changed = augmentation(sample)
    torch.set_rng_state(state)
    random.setstate(python_state)
    return changed
