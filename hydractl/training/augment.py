"""What happens to training samples: augmentation by torchvision, then the model's own preprocessing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from PIL import Image

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import ImageEmbeddings, ModelSpec
from hydractl.data.images import with_channels
from hydractl.data.preprocess import Preprocessor, preprocessor_from_json
from hydractl.training.recipe import Recipe
from hydractl.training.trainset import Pair


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
