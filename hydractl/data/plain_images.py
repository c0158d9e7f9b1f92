"""The usual image processors of transformers and timm: the same numbers bit for bit, without ten seconds of imports.

What is not known here, to the last setting, is left to its library.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor
from typing import Annotated, Any, Literal

import numpy as np
import torch
from PIL import Image
from pydantic import ConfigDict, Field, ValidationError
from torch import Tensor
from torch.nn import functional as F

from hydractl.schema import Items, Schema

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what timm's settings mean where they name none


@dataclass(frozen=True)
class PlainImages:
    """A function of one image to `[channels,height,width]`, and one of a batch to floating-point numbers."""

    pixels: Callable[[Image.Image], Tensor]
    normalized: Callable[[Tensor], Tensor]

    def __call__(self, images: Sequence[Image.Image], return_tensors: str) -> dict[str, Tensor]:
        """Returns `pixel_values` `[B,channels,height,width]`.

        Raises:
            ValueError: the images come out in different sizes.
        """
        parts = [self.pixels(image) for image in images]
        if len(sizes := {tuple(part.shape[1:]) for part in parts}) > 1:
            raise ValueError(f"they come out as {list(min(sizes))} and {list(max(sizes))}")
        return {"pixel_values": self.normalized(torch.stack(parts))}


def plain_images(files: Mapping[str, Any], channels: int) -> PlainImages | None:
    """Returns the image processor of a checkpoint's files, or None where only its library knows how."""
    settings = files.get("preprocessor_config.json")
    if "processor_config.json" in files or not isinstance(settings, dict):
        return None
    try:
        if settings.keys() == {"image_processor_type", "pretrained_cfg"}:
            return _of_timm(_Timm.model_validate_json(json.dumps(settings["pretrained_cfg"])), channels)
        return _of_transformers(_Transformers.model_validate_json(json.dumps(settings)), channels)
    except ValidationError:
        return None


class _Rectangle(Schema):
    height: Annotated[int, Field(ge=1)]
    width: Annotated[int, Field(ge=1)]


class _Edge(Schema):
    shortest_edge: Annotated[int, Field(ge=1)]


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


def _of_transformers(settings: _Transformers, channels: int) -> PlainImages | None:
    crop = settings.crop_size if settings.do_center_crop else None
    if (settings.do_convert_rgb and channels != 3) or (settings.do_center_crop and crop is None):
        return None
    if not settings.rescale_factor or not _suit(settings.image_mean, settings.image_std, channels):
        return None
    mode = {2: "bilinear", 3: "bicubic"}[settings.resample]
    return PlainImages(partial(_pixels, settings, crop, mode), partial(_normalized, settings))


def _pixels(settings: _Transformers, crop: _Rectangle | None, mode: str, image: Image.Image) -> Tensor:
    found = _channels_first(image)
    if settings.do_resize:
        found = _resized(found, _size(settings.size, image), mode)
    return found if crop is None else _middle(found, (crop.height, crop.width), int)


def _normalized(settings: _Transformers, batch: Tensor) -> Tensor:
    if not settings.do_normalize:
        return batch * settings.rescale_factor if settings.do_rescale else batch
    mean, deviation = torch.tensor(settings.image_mean), torch.tensor(settings.image_std)
    if settings.do_rescale:  # in one step with the mean, as theirs
        mean, deviation = (each * (1.0 / settings.rescale_factor) for each in (mean, deviation))
    return batch.to(torch.float32).sub_(mean.view(-1, 1, 1)).div_(deviation.view(-1, 1, 1))


class _Timm(Schema):
    """The settings that decide timm's transform of an image for inference."""

    model_config = ConfigDict(extra="ignore")

    input_size: tuple[int, int, int]
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    crop_pct: Annotated[float, Field(gt=0)] = 0.875
    crop_mode: Literal["center"] = "center"
    mean: Items[float] = IMAGENET[0]
    std: Items[float] = IMAGENET[1]


def _of_timm(settings: _Timm, channels: int) -> PlainImages | None:
    depth, height, width = settings.input_size
    if depth != channels or height != width or not _suit(settings.mean, settings.std, channels):
        return None
    return PlainImages(partial(_timm_pixels, settings), partial(_timm_normalized, settings))


def _timm_pixels(settings: _Timm, image: Image.Image) -> Tensor:
    _, height, width = settings.input_size
    resample = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[settings.interpolation]
    rows, columns = _size(_Edge(shortest_edge=floor(height / settings.crop_pct)), image)
    resized = image if image.size == (columns, rows) else image.resize((columns, rows), resample)
    return _middle(_channels_first(resized), (height, width), round)


def _timm_normalized(settings: _Timm, batch: Tensor) -> Tensor:
    mean, deviation = (torch.tensor(each).view(-1, 1, 1) for each in (settings.mean, settings.std))
    return batch.to(torch.float32).div_(255).sub_(mean).div_(deviation)


def _suit(means: Sequence[float], deviations: Sequence[float], channels: int) -> bool:
    return len(means) == len(deviations) and len(means) in (1, channels) and all(deviations)


def _channels_first(image: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(image))
    return (pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)).contiguous()


def _size(size: _Rectangle | _Edge, image: Image.Image) -> tuple[int, int]:
    """Returns rows and columns of a resized image."""
    if isinstance(size, _Rectangle):
        return size.height, size.width
    edge = size.shortest_edge
    other = int(edge * max(image.size) / min(image.size))
    return (other, edge) if image.width <= image.height else (edge, other)


def _resized(pixels: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    """Returns uint8 pixels in another size, as torchvision makes them."""
    if tuple(pixels.shape[-2:]) == size:
        return pixels
    # Where torch has no kernel for bytes, torchvision takes the one for float32.
    native = mode == "bicubic" or _has_byte_kernel()
    found = pixels[None] if native else pixels[None].to(torch.float32)
    found = F.interpolate(found, size=list(size), mode=mode, align_corners=False, antialias=True)[0]
    return found if native else found.round_().to(torch.uint8)


def _has_byte_kernel() -> bool:
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") or platform.machine() in ("aarch64", "arm64")


def _middle(pixels: Tensor, size: tuple[int, int], rounded: Callable[[float], int]) -> Tensor:
    """Returns the middle of an image, with zeros round one that is too small; libraries round its place differently."""
    for axis, wanted in zip((-2, -1), size, strict=True):
        missing = max(wanted - pixels.shape[axis], 0)
        sides = [0, 0] * (-axis - 1) + [missing // 2, (missing + 1) // 2]
        padded = F.pad(pixels, sides) if missing else pixels
        pixels = padded.narrow(axis, rounded((padded.shape[axis] - wanted) / 2.0), wanted)
    return pixels
