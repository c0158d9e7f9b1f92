"""Image processors and tokenizers opened from files that a checkpoint brings.

The usual image processors are ours, which start at once and give the same numbers; all others are those of
`transformers`.

The libraries raise any exception on a damaged file, sometimes only at first use, and make images of any size. So sizes
are checked first, each processor and tokenizer is tried once when it is opened, and any failure becomes one error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from PIL import Image
from pydantic import BeforeValidator

from hydractl.checkpoint.sentences import TEXTS
from hydractl.checkpoint.tower_spec import ImageEmbeddings, TextEmbeddings
from hydractl.data.images import with_channels
from hydractl.data.plain_images import plain_images
from hydractl.errors import CheckpointError, DataError, HydractlError
from hydractl.schema import Checked, Origin, Schema, document
from hydractl.text import first_sentence, shortened

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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


@contextmanager
def _refusing(where: str, names: list[str], folder: Path) -> Iterator[None]:
    """Turns any error of a library into one line that names the given files."""

    def refusal(reason: str) -> HydractlError:
        finding = f"{' or '.join(names)} cannot be used: {first_sentence(reason.replace(str(folder), where))}"
        return Origin(where, CheckpointError, REMEDY).refusal(finding)

    with failing_as(refusal):
        yield


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
