"""Augmentation of training images by torchvision, before the model's own preprocessing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PIL import Image

from hydractl.checkpoint.spec import ImageEmbeddings, ModelSpec
from hydractl.data.images import with_channels
from hydractl.training.recipe import Recipe


@dataclass(frozen=True)
class ImageAugmentation:
    """What happens to each training image: `transform` is torchvision's, fed with as many channels as the model has."""

    channels: int
    pad_crop: int
    transform: Any

    def __call__(self, image: Image.Image) -> Image.Image:
        """The image after one random draw."""
        from torchvision.transforms import v2

        image = with_channels(image, self.channels)
        if self.pad_crop:
            image = v2.RandomCrop((image.height, image.width), self.pad_crop)(image)
        return self.transform(image)


def build_augmentation(recipe: Recipe, spec: ModelSpec) -> ImageAugmentation | None:
    """The recipe's augmentation for a model, or None where it has none, or the model takes no images.

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
    return ImageAugmentation(embeddings.channels, recipe.pad_crop, v2.Compose(steps or [v2.Identity()]))
