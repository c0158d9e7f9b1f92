"""Image processors and tokenizers opened from files that a checkpoint brings.

The usual image processors of transformers and timm are ours: the same numbers bit for bit, without ten seconds of
imports. What is not known here, to the last setting, is left to its library.

The libraries raise any exception on a damaged file, sometimes only at first use, and make images of any size. So sizes
are checked first, each processor and tokenizer is tried once when it is opened, and any failure becomes one error.
"""

from __future__ import annotations

import html
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import BeforeValidator

from hydractl.checkpoint.sentences import TEXTS
from hydractl.checkpoint.tower_spec import ImageEmbeddings, TextEmbeddings
from hydractl.data.images import with_channels
from hydractl.errors import CheckpointError, DataError, HydractlError
from hydractl.schema import Checked, Items, Origin, Schema, document
from hydractl.text import first_sentence, shortened

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

ORIGIN = Origin("preprocessor_config.json", CheckpointError, "its library reads it")

Pixels = NDArray[Any]  # `[channels,height,width]`
Resized = Callable[[Pixels, tuple[int, int], str], Pixels]  # pixels in another size, given it and a kind of RESAMPLING
RESAMPLING = {2: "bilinear", 3: "bicubic"}  # by Pillow's numbers
PILLOW = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
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
        rows, columns = _size(_Edge(shortest_edge=floor(height / self.crop_pct)), image)
        resized = image if image.size == (columns, rows) else image.resize((columns, rows), PILLOW[self.interpolation])
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
    return np.stack([np.asarray(Image.fromarray(channel).resize(size[::-1], PILLOW[mode])) for channel in pixels])


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


LARGEST = 4096  # pixels of a side: no model takes more, and larger images take gigabytes
REMEDY = "fetch it again from where the model comes"
IMAGE_FILES = ("preprocessor_config.json", "processor_config.json")
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
              "vocab.txt", "merges.txt")  # fmt: skip
#: The files that hold a tokenizer's tokens.
TOKENIZERS = frozenset(("tokenizer.json", "vocab.txt", "vocab.json"))


def _by_name(value: Any) -> Any:
    """Returns a size as an object, also where it is one number or a list of them."""
    listed = value if isinstance(value, list) else [value]
    return value if isinstance(value, dict) else {str(place): number for place, number in enumerate(listed)}


Side = Annotated[int, Checked(ge=1, le=LARGEST)]
Sides = Annotated[dict[str, Side | None] | None, BeforeValidator(_by_name)]
Area = Annotated[int, Checked(ge=1, le=LARGEST**2)]


class _Sizes(Schema, extra="ignore"):
    """The settings of an image processor that decide how large an image becomes."""

    size: Sides = None
    crop_size: Sides = None
    pad_size: Sides = None
    min_pixels: Area | None = None
    max_pixels: Area | None = None
    # timm's settings; it enlarges an image by 1 / crop_pct before the crop.
    input_size: Sides = None
    img_size: Sides = None
    crop_pct: Annotated[float, Checked(ge=0.1, le=10)] | None = None
    pretrained_cfg: _Sizes | None = None
    image_processor: _Sizes | None = None


def open_image_processor(folder: Path, files: Mapping[str, Any], embeddings: ImageEmbeddings, where: str) -> Any:
    """Opens an image processor with the model's number of channels.

    Args:
        folder: the folder of the files.
        files: their contents.
        where: the checkpoint, for messages.

    Raises:
        CheckpointError: the processor is missing, damaged, or of another model.
    """
    here = [name for name in IMAGE_FILES if name in files]
    if not here:
        raise CheckpointError(
            f"{where}: has no preprocessor_config.json, so sizes and colours are unknown: "
            "add the one of the model it was trained from"
        )
    for name in here:
        document(files[name], Origin(f"{where}: {name}", CheckpointError, REMEDY)).read(_Sizes)
    with _refusing(where, here, folder):
        processor = plain_images(files, embeddings.channels) or _their_processor(folder, files)
        _try_image(processor, embeddings.channels)
    return processor


def _their_processor(folder: Path, files: Mapping[str, Any]) -> Any:
    from transformers import AutoImageProcessor, TimmWrapperImageProcessor

    timm_settings = files.get("preprocessor_config.json", {}).get("pretrained_cfg")
    if timm_settings is not None:
        # AutoImageProcessor finds this processor only by a timm config.json, which our files do not have.
        return TimmWrapperImageProcessor(timm_settings)
    auto: Any = AutoImageProcessor  # untyped in transformers
    return auto.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def _try_image(processor: Any, channels: int) -> None:
    mean = getattr(processor, "image_mean", None)
    values = len(mean) if isinstance(mean, list | tuple) else 1
    if values not in (1, channels):
        raise ValueError(f"it normalises {values} channels, the model has {channels}")
    grey = with_channels(Image.new("RGB", (16, 16), (128, 128, 128)), channels)
    pixels = processor(images=[grey], return_tensors="pt")["pixel_values"]
    if pixels.ndim != 4 or pixels.shape[1] != channels:
        raise ValueError(f"an image becomes {list(pixels.shape)}, the model takes {channels} channels")
    if not pixels.isfinite().all():
        raise ValueError("it makes numbers that are not finite")


def open_tokenizer(folder: Path, files: Mapping[str, Any], embeddings: TextEmbeddings, where: str) -> Any:
    """Opens a tokenizer; see `open_image_processor`."""
    if not files.keys() & TOKENIZERS:
        raise CheckpointError(
            f"{where}: has no tokenizer.json (nor vocab.txt), so texts cannot be read: "
            "add the tokenizer of the model it was trained from (transformers saves one that it made of an spm.model)"
        )
    with _refusing(where, [name for name in TEXT_FILES if name in files], folder):
        from transformers import AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        _try_tokenizer(tokenizer, embeddings)
        if files.get(TEXTS, {}).get("do_lower_case"):
            _lower(tokenizer.backend_tokenizer)
    return tokenizer


def unembedded(tokens: Mapping[str, int], embeddings: TextEmbeddings) -> dict[int, str]:
    """Returns the tokens of a vocabulary that a model does not embed, by their numbers."""
    return {number: token for token, number in tokens.items() if number >= embeddings.vocabulary}


def refuse_unembedded(ids: Iterable[int], strange: Mapping[int, str]) -> None:
    """Raises DataError if there are ids of tokens that the model does not embed.

    Args:
        strange: the tokens of these, as `unembedded` returns them.
    """
    if (number := next((number for number in ids if number in strange), None)) is not None:
        raise DataError(
            f"a text has the token {shortened(strange[number], 40)!r} (number {number}), which the model does not "
            "embed: leave it out, or fetch the tokenizer that the model was trained with"
        )


def refuse_bare(encodings: Iterable[Any], texts: Sequence[Any]) -> None:
    """Raises DataError if a text has no token, not even one that a tokenizer adds to each."""
    bare = [at for at, encoding in enumerate(encodings) if not any(encoding.attention_mask)]
    if bare:
        text = shortened(str(texts[bare[0]]), 40)
        raise DataError(f"text {bare[0]}, {text!r}: the tokenizer finds no token: leave it out")


def clean_as_open_clip(text: str) -> str:
    """Returns a text as OpenCLIP cleans it before any tokenizer: its letters mended by ftfy, and HTML unescaped.

    Source: `basic_clean` in open_clip/tokenizer.py.
    """
    from ftfy import fix_text

    return html.unescape(html.unescape(fix_text(text))).strip()


def _lower(tokenizer: Tokenizer) -> None:
    """Lowers all letters of texts first, as sentence-transformers does by `do_lower_case`."""
    from tokenizers.normalizers import Lowercase, Sequence

    normalizer: Any = tokenizer.normalizer
    several = isinstance(normalizer, Sequence)
    steps = list(normalizer) if several else [normalizer] if normalizer is not None else []
    if not any(isinstance(step, Lowercase) for step in steps):
        tokenizer.normalizer = Sequence([Lowercase(), *steps])


def _try_tokenizer(tokenizer: Any, embeddings: TextEmbeddings) -> None:
    if not tokenizer.is_fast or tokenizer.pad_token is None:
        lack = "padding token" if tokenizer.is_fast else "tokenizer.json and none can be made"
        raise ValueError(f"the tokenizer has no {lack}")
    if strange := [number for number in tokenizer("")["input_ids"] if number >= embeddings.vocabulary]:
        token = tokenizer.convert_ids_to_tokens(strange[0])
        raise ValueError(f"each text gets the token {token!r}, which the model does not embed")
    longest, added = tokenizer.model_max_length, max(map(tokenizer.num_special_tokens_to_add, (False, True)))
    if isinstance(longest, bool) or min(longest, embeddings.max_tokens) <= added:
        limit = f"model_max_length is {longest}" if longest <= added else f"the model has {embeddings.max_tokens}"
        raise ValueError(f"{limit}, should be more than the {added} tokens round a text")
    # Padding on the left would shift absolute positions, so that an answer depends on the texts beside it.
    tokenizer.padding_side = "right"
    tokenizer(["a text"], padding="longest", return_tensors="pt")


def _refusing(where: str, names: list[str], folder: Path) -> AbstractContextManager[None]:
    """Turns any error of a library into one line that names the given files."""

    def refusal(reason: str) -> HydractlError:
        finding = f"{' or '.join(names)} cannot be used: {first_sentence(reason.replace(str(folder), where))}"
        return Origin(where, CheckpointError, REMEDY).refusal(finding)

    return failing_as(refusal)


@contextmanager
def failing_as(refusal: Callable[[str], HydractlError]) -> Iterator[None]:
    """Turns any error of a library into the error that `refusal` makes of its reason.

    A panic of a library in Rust is a BaseException.
    """
    try:
        yield
    except (HydractlError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise refusal(str(error).strip() or type(error).__name__) from error
