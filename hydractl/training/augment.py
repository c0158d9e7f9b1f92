"""Makes tensors of training samples: augmentation by torchvision, then the model's own preprocessing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import ImageEmbeddings, ModelSpec
from hydractl.data.batching import Batch
from hydractl.data.images import with_channels
from hydractl.data.preprocess import Preprocessor, preprocessor_from_json
from hydractl.errors import DataError
from hydractl.training.order import AUGMENTATION, derived_seed
from hydractl.training.recipe import Recipe
from hydractl.training.request import Seeds
from hydractl.training.trainset import Pair


def training_preprocessor(checkpoint: Checkpoint, recipe: Recipe) -> Preprocessor:
    """Returns the checkpoint's preprocessing, for pairs if the loss is contrastive, with the recipe's text length."""
    preprocessor = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config)
    if recipe.loss == "contrastive":
        # It has all that batching needs of a preprocessor.
        return cast("Preprocessor", PairPreprocessor(preprocessor))
    text = preprocessor.text
    if text is None or not recipe.max_length:
        return preprocessor
    return replace(
        preprocessor, text=replace(text, max_length=min(recipe.max_length, text.max_length or recipe.max_length))
    )


@dataclass(frozen=True)
class PairPreprocessor:
    """A zero-shot model's preprocessing, for pairs."""

    both: Preprocessor

    @property
    def text(self) -> None:
        """Always None: pairs are not batched by the length of their texts."""
        return None

    def __call__(self, pairs: Iterable[Pair]) -> dict[str, Tensor]:
        """Returns the tensors of the images and of the texts."""
        images, texts = zip(*pairs, strict=True)
        return {**self.both(images), **self.both(texts)}


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


@dataclass(frozen=True, eq=False)
class Preparation:
    """Makes batches: augments each sample by its place in the order, then preprocesses them."""

    preprocessor: Preprocessor
    augmentation: Callable[[Any], Any] | None
    seeds: Seeds

    def batch(
        self, places: Sequence[int], inputs: Iterable[Any], labels: NDArray[np.int64] | None
    ) -> Batch | DataError:
        """Returns the batch, or a DataError: raised in a worker, it would come back as a traceback."""
        try:
            tensors = self.preprocessor(self._augmented(places, inputs))
        except DataError as error:
            return error
        return Batch(tensors, None if labels is None else torch.from_numpy(labels), torch.tensor(places))

    def _augmented(self, places: Sequence[int], inputs: Iterable[Any]) -> Iterable[Any]:
        if self.augmentation is None:
            return inputs
        state, python_state = torch.get_rng_state(), random.getstate()
        changed = []
        for place, image in zip(places, inputs, strict=True):
            # Seeded by its place, an image looks the same whoever loads it.
            draw = derived_seed(self.seeds.noise, AUGMENTATION, place)
            # torch.manual_seed takes many times longer, since it notes its caller for every GPU.
            torch.default_generator.manual_seed(draw)
            random.seed(draw)
            changed.append(self.augmentation(image))
        torch.set_rng_state(state)
        random.setstate(python_state)
        return changed
