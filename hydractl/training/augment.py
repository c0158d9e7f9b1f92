"""How training samples become tensors: augmentation by torchvision, then the model's own preprocessing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

from PIL import Image
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import ImageEmbeddings, ModelSpec
from hydractl.data.images import with_channels
from hydractl.data.preprocess import Preprocessor, preprocessor_from_json
from hydractl.training.pairs import Pair
from hydractl.training.recipe import Recipe


def training_preprocessor(checkpoint: Checkpoint, recipe: Recipe) -> Preprocessor:
    """Returns the checkpoint's preprocessing, for pairs if the loss is contrastive, with the recipe's text length."""
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


@dataclass(frozen=True)
class PairPreprocessor:
    """A zero-shot model's preprocessing, for pairs."""

    both: Preprocessor

    @property
    def text(self) -> None:
        """None: pairs are not batched by the length of their texts."""
        return None

    def __call__(self, pairs: Iterable[Pair]) -> dict[str, Tensor]:
        """Returns the tensors of the images and of the texts."""
        images, texts = zip(*pairs, strict=True)
        return {**self.both(images), **self.both(texts)}


@dataclass(frozen=True)
class ImageAugmentation:
    """Augments one image: `transform` is torchvision's, on as many channels as the model has."""

    channels: int
    pad_crop: int
    transform: Any

    def __call__(self, image: Image.Image) -> Image.Image:
        """Returns the image after one random draw."""
        from torchvision.transforms import v2

        image = with_channels(image, self.channels)
        if self.pad_crop:
            image = v2.RandomCrop((image.height, image.width), self.pad_crop)(image)
        return self.transform(image)


@dataclass(frozen=True)
class PairAugmentation:
    """Augments the image of a pair."""

    of_images: ImageAugmentation

    def __call__(self, pair: Pair) -> Pair:
        return self.of_images(pair[0]), pair[1]


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
    of_images = ImageAugmentation(embeddings.channels, recipe.pad_crop, v2.Compose(steps or [v2.Identity()]))
    return PairAugmentation(of_images) if recipe.loss == "contrastive" else of_images
