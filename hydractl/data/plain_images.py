"""The usual image processors of transformers and timm: the same numbers bit for bit, without ten seconds of imports.

What is not known here, to the last setting, is left to its library.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hydractl.errors import CheckpointError
from hydractl.schema import Checked, Items, Origin, Schema, document

ORIGIN = Origin("preprocessor_config.json", CheckpointError, "its library reads it")
if TYPE_CHECKING:
    from torch import Tensor

Pixels = NDArray[Any]  # `[channels,height,width]`
Resized = Callable[[Pixels, tuple[int, int], str], Pixels]  # pixels in another size, given it and a kind of RESAMPLING
RESAMPLING = {2: "bilinear", 3: "bicubic"}  # by Pillow's numbers
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what timm's settings mean where they name none


@dataclass(frozen=True)
class PlainImages:
    """Prepares images one by one."""

    settings: _Transformers | _Timm

    def __call__(self, images: Sequence[Image.Image], return_tensors: Literal["pt"]) -> dict[str, Tensor]:
        """Returns `pixel_values` `[B,channels,height,width]` of images that come out in one size."""
        import torch

        return {"pixel_values": torch.from_numpy(np.stack([self.settings.prepare(image) for image in images]))}

    def without_torch(self, image: Image.Image) -> Pixels:
        """Returns the pixels of an image that Pillow resizes; torch rounds some of them to the next of 256 levels."""
        return self.settings.prepare(image, _by_pillow)


def plain_images(files: Mapping[str, Any], channels: int) -> PlainImages | None:
    """Returns the image processor of a checkpoint's files, or None where only its library knows how."""
    settings = files.get("preprocessor_config.json")
    if "processor_config.json" in files or not isinstance(settings, dict):
        return None
    try:
        if settings.keys() == {"image_processor_type", "pretrained_cfg"}:
            processor: _Timm | _Transformers = document(settings["pretrained_cfg"], ORIGIN).read(_Timm)
        else:
            processor = document(settings, ORIGIN).read(_Transformers)
    except CheckpointError:
        return None
    return PlainImages(processor) if processor.suits(channels) else None


class _Rectangle(Schema):
    height: Annotated[int, Checked(ge=1)]
    width: Annotated[int, Checked(ge=1)]


class _Edge(Schema):
    shortest_edge: Annotated[int, Checked(ge=1)]


class _Transformers(Schema):
    """The settings of ViT's and CLIP's image processors, which differ in their defaults alone."""

    image_processor_type: Literal[
        "ViTImageProcessor", "ViTImageProcessorFast", "CLIPImageProcessor", "CLIPImageProcessorFast"
    ]
    do_resize: bool
    size: _Rectangle | _Edge
    resample: Literal[2, 3]
    do_center_crop: bool = False
    crop_size: _Rectangle | None = None
    do_rescale: bool
    rescale_factor: float
    do_normalize: bool
    image_mean: Items[float]
    image_std: Items[float]
    do_convert_rgb: bool | None = None

    def suits(self, channels: int) -> bool:
        """Returns whether the settings are complete, and of images of so many channels."""
        if (self.do_convert_rgb and channels != 3) or (self.do_center_crop and self.crop_size is None):
            return False
        return bool(self.rescale_factor) and _suit(self.image_mean, self.image_std, channels)

    def prepare(self, image: Image.Image, resized: Resized | None = None) -> Pixels:
        """Returns the pixels of an image.

        Args:
            resized: how pixels get another size; by torch unless it is given.
        """
        pixels = _channels_first(image)
        if self.do_resize:
            pixels = (resized or _resized)(pixels, _size(self.size, image), RESAMPLING[self.resample])
        if self.do_center_crop and self.crop_size is not None:
            pixels = _middle(pixels, (self.crop_size.height, self.crop_size.width), int)
        if not self.do_normalize:
            return pixels.astype(np.float32) * np.float32(self.rescale_factor) if self.do_rescale else pixels
        mean, deviation = (np.array(each, np.float32) for each in (self.image_mean, self.image_std))
        if self.do_rescale:  # in one step with the mean, as theirs
            mean, deviation = (each * np.float32(1.0 / self.rescale_factor) for each in (mean, deviation))
        return _normalised(pixels.astype(np.float32), mean, deviation)


class _Timm(Schema, extra="ignore"):
    """The settings that decide timm's transform of an image for inference."""

    input_size: tuple[int, int, int]
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    crop_pct: Annotated[float, Checked(gt=0)] = 0.875
    crop_mode: Literal["center"] = "center"
    mean: Items[float] = IMAGENET[0]
    std: Items[float] = IMAGENET[1]

    def suits(self, channels: int) -> bool:
        """Returns whether the settings are of square images of so many channels."""
        depth, height, width = self.input_size
        return depth == channels and height == width and _suit(self.mean, self.std, channels)

    def prepare(self, image: Image.Image, _resized: Resized | None = None) -> Pixels:
        """Returns the pixels of an image; timm itself resizes by Pillow."""
        _, height, width = self.input_size
        resample = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[self.interpolation]
        rows, columns = _size(_Edge(shortest_edge=floor(height / self.crop_pct)), image)
        resized = image if image.size == (columns, rows) else image.resize((columns, rows), resample)
        pixels = _middle(_channels_first(resized), (height, width), round)
        mean, deviation = (np.array(each, np.float32) for each in (self.mean, self.std))
        return _normalised(pixels.astype(np.float32) / np.float32(255), mean, deviation)


def _normalised(pixels: Pixels, mean: Pixels, deviation: Pixels) -> Pixels:
    pixels -= mean[:, None, None]
    pixels /= deviation[:, None, None]
    return pixels


def _suit(means: Sequence[float], deviations: Sequence[float], channels: int) -> bool:
    return len(means) == len(deviations) and len(means) in (1, channels) and all(deviations)


def _channels_first(image: Image.Image) -> Pixels:
    pixels = np.array(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _size(size: _Rectangle | _Edge, image: Image.Image) -> tuple[int, int]:
    """Returns rows and columns of a resized image."""
    if isinstance(size, _Rectangle):
        return size.height, size.width
    edge = size.shortest_edge
    other = int(edge * max(image.size) / min(image.size))
    return (other, edge) if image.width <= image.height else (edge, other)


def _by_pillow(pixels: Pixels, size: tuple[int, int], mode: str) -> Pixels:
    """Returns uint8 pixels in another size, one channel after the other."""
    resample = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[mode]
    return np.stack([np.asarray(Image.fromarray(channel).resize(size[::-1], resample)) for channel in pixels])


def _resized(pixels: Pixels, size: tuple[int, int], mode: str) -> Pixels:
    """Returns uint8 pixels in another size, as torchvision makes them."""
    import torch
    from torch.nn import functional as F

    if pixels.shape[-2:] == size:
        return pixels
    # Where torch has no kernel for bytes, torchvision takes the one for float32.
    native = mode == "bicubic" or _has_byte_kernel(torch.backends.cpu.get_cpu_capability())
    tensor = torch.from_numpy(pixels)[None]
    resized = tensor if native else tensor.to(torch.float32)
    resized = F.interpolate(resized, size=list(size), mode=mode, align_corners=False, antialias=True)[0]
    return (resized if native else resized.round_().to(torch.uint8)).numpy()


def _has_byte_kernel(capability: str) -> bool:
    return capability in ("AVX2", "AVX512") or platform.machine() in ("aarch64", "arm64")


def _middle(pixels: Pixels, size: tuple[int, int], rounded: Callable[[float], int]) -> Pixels:
    """Returns the middle of an image, with zeros round one that is too small; libraries round its place differently."""
    for axis, length in zip((1, 2), size, strict=True):
        missing = max(length - pixels.shape[axis], 0)
        sides = [(0, 0)] * 3
        sides[axis] = (missing // 2, (missing + 1) // 2)
        padded = np.pad(pixels, sides) if missing else pixels
        start = rounded((padded.shape[axis] - length) / 2.0)
        pixels = padded.take(range(start, start + length), axis)
    return pixels
