"""Image processors and tokenizers of `transformers`, opened from files that a checkpoint brings.

The libraries raise whatever they like on a damaged file, some of it only when they are first used, and make images of
any size. So sizes are checked before, each is tried once as soon as it is open, and a failure is one error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

from PIL import Image
from pydantic import BeforeValidator, ConfigDict, Field

from hydractl.checkpoint.spec import ImageEmbeddings, TextEmbeddings
from hydractl.data.images import with_channels
from hydractl.errors import CheckpointError, HydractlError
from hydractl.schema import Origin, Schema, document
from hydractl.text import first_sentence

LARGEST = 4096  # pixels of a side: larger ones are of no model, and take gigabytes
REMEDY = "fetch it again from where the model comes"
IMAGE_FILES = ("preprocessor_config.json", "processor_config.json")
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
              "vocab.txt", "merges.txt")  # fmt: skip

_STDERR = Lock()  # it is put aside by one thread at a time


def _by_name(value: Any) -> Any:
    """Returns a size as an object, also where it is one number or a list of them."""
    listed = value if isinstance(value, list) else [value]
    return value if isinstance(value, dict) else {str(place): number for place, number in enumerate(listed)}


def _several(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else (value,)


Side = Annotated[int, Field(ge=1, le=LARGEST)]
Sides = Annotated[dict[str, Side | None], BeforeValidator(_by_name)]
Pixels = Annotated[int, Field(ge=1, le=LARGEST**2)]
Number = Annotated[float, Field(ge=-1e6, le=1e6)]
Numbers = Annotated[tuple[Number, ...], BeforeValidator(_several), Field(max_length=1024)]
Word = Annotated[str, Field(max_length=100)]


class _Timm(Schema):
    """The settings of timm that decide how an image is prepared."""

    model_config = ConfigDict(extra="ignore")

    input_size: tuple[Side, Side, Side] | None = None
    img_size: Sides | None = None
    in_chans: Side | None = None
    chans: Side | None = None
    mean: Numbers | None = None
    std: Numbers | None = None
    # An image is made larger by as much before it is cropped.
    crop_pct: Annotated[float, Field(ge=0.1, le=10)] | None = None
    crop_mode: Word | None = None
    interpolation: Word | None = None


class _Settings(Schema):
    """The settings of an image processor that decide how an image is prepared."""

    model_config = ConfigDict(extra="ignore")

    size: Sides | None = None
    crop_size: Sides | None = None
    pad_size: Sides | None = None
    min_pixels: Pixels | None = None
    max_pixels: Pixels | None = None
    do_resize: bool | None = None
    do_center_crop: bool | None = None
    do_rescale: bool | None = None
    do_normalize: bool | None = None
    do_convert_rgb: bool | None = None
    do_pad: bool | None = None
    resample: Annotated[int, Field(ge=0, le=5)] | None = None
    rescale_factor: Number | None = None
    image_mean: Numbers | None = None
    image_std: Numbers | None = None
    image_processor_type: Word | None = None
    pretrained_cfg: _Timm | None = None


class _Image(_Settings):
    """The same, of a file that may have them in a part of its own."""

    image_processor: _Settings | None = None


def open_image_processor(folder: Path, files: Mapping[str, Any], embeddings: ImageEmbeddings, where: str) -> Any:
    """Opens an image processor that makes numbers for as many channels as the model has.

    Args:
        folder: where the files lie.
        files: their contents.
        where: the checkpoint, for messages.

    Raises:
        CheckpointError: there is none, it is damaged, or it is of another model.
    """
    from transformers import AutoImageProcessor, TimmWrapperImageProcessor

    here = [name for name in IMAGE_FILES if name in files]
    if not here:
        raise CheckpointError(
            f"{where}: has no preprocessor_config.json, so sizes and colours are unknown: "
            "add the one of the model it was trained from"
        )
    for name in here:
        document(files[name], Origin(f"{where}: {name}", CheckpointError, REMEDY)).read(_Image)
    auto: Any = AutoImageProcessor  # untyped in transformers
    timm_settings = files.get("preprocessor_config.json", {}).get("pretrained_cfg")
    with _refusing(where, here, folder):
        if timm_settings is not None:
            # Only from a timm config.json, which a file of ours is not, would the automatic way find this processor.
            processor = TimmWrapperImageProcessor(timm_settings)
        else:
            processor = auto.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        _try_image(processor, embeddings.channels)
    return processor


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
    """Opens a tokenizer whose tokens the model has embeddings for; see `open_image_processor`."""
    from transformers import AutoTokenizer

    if not files.keys() & {"tokenizer.json", "vocab.txt", "vocab.json"}:
        raise CheckpointError(
            f"{where}: has no tokenizer.json (nor vocab.txt), so texts cannot be read: "
            "add the tokenizer of the model it was trained from"
        )
    with _refusing(where, [name for name in TEXT_FILES if name in files], folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        _try_tokenizer(tokenizer, embeddings)
    return tokenizer


def _try_tokenizer(tokenizer: Any, embeddings: TextEmbeddings) -> None:
    if not tokenizer.is_fast or tokenizer.pad_token is None:
        lack = "padding token" if tokenizer.is_fast else "tokenizer.json and none can be made"
        raise ValueError(f"the tokenizer has no {lack}")
    tokens, most = len(tokenizer), embeddings.vocabulary
    if tokens > most:
        raise ValueError(f"the tokenizer has {tokens} tokens, the model embeds {most}")
    # The numbers of tokens need not follow one another.
    if (last := max(tokenizer.get_vocab().values(), default=0)) >= most:
        raise ValueError(f"the tokenizer has a token of number {last}, the model embeds {most}")
    longest, added = tokenizer.model_max_length, max(map(tokenizer.num_special_tokens_to_add, (False, True)))
    if isinstance(longest, bool) or min(longest, embeddings.max_tokens) <= added:
        limit = f"model_max_length is {longest}" if longest <= added else f"the model has {embeddings.max_tokens}"
        raise ValueError(f"{limit}, should be more than the {added} tokens round a text")
    tokenizer(["a text"], padding="longest", return_tensors="pt")


@contextmanager
def _refusing(where: str, names: list[str], folder: Path) -> Iterator[None]:
    """Turns whatever a library raises into one line that names the files it was given."""

    def refusal(reason: str) -> HydractlError:
        finding = f"{' or '.join(names)} cannot be used: {first_sentence(reason.replace(str(folder), where))}"
        return Origin(where, CheckpointError, REMEDY).refusal(finding)

    with failing_as(refusal), _without_panics():
        yield


@contextmanager
def failing_as(refusal: Callable[[str], HydractlError]) -> Iterator[None]:
    """Turns whatever a library raises while the block runs into an error of ours, made of the reason.

    A library in Rust panics outside of Exception.
    """
    try:
        yield
    except (HydractlError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise refusal(str(error).strip() or type(error).__name__) from error


@contextmanager
def _without_panics() -> Iterator[None]:
    """Keeps off stderr what a library in Rust prints there before its panic becomes an error, which says the same."""
    with _STDERR:
        try:
            kept = os.dup(2)
        except OSError:  # it is closed
            yield
            return
        try:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
