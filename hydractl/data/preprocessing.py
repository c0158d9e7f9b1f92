"""Raw images and texts as a model's inputs, by the image processor and tokenizer of `transformers` itself."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from hydractl.checkpoint.preprocessing import read_preprocessing
from hydractl.checkpoint.spec import ImageEmbeddings, ModelSpec, TextEmbeddings
from hydractl.checkpoint.tensors import read_json
from hydractl.data.images import with_channels
from hydractl.data.processors import open_image_processor, open_tokenizer
from hydractl.errors import DataError
from hydractl.text import shortened

if TYPE_CHECKING:
    from hydractl.data.like import Text

UNBOUNDED = 10**9  # tokenizers without a length limit name a number beyond any table of positions
CHUNK = 1024  # texts measured at a time


@dataclass(frozen=True)
class ImagePreprocessor:
    """An image processor of `transformers`, fed with images of as many channels as the model has."""

    processor: Any
    channels: int

    def __call__(self, images: Sequence[Image.Image]) -> dict[str, Tensor]:
        """`pixel_values` `[B,channels,height,width]` float32, as the processor makes them of grey or RGB images.

        Raises:
            DataError: the images come out in different sizes.
        """
        converted = [with_channels(image, self.channels) for image in images]
        try:
            pixels = self.processor(images=converted, return_tensors="pt")["pixel_values"]
        except ValueError as error:
            reason = shortened(str(error).partition("\n")[0], 150)
            raise DataError(
                f"{len(images)} images do not fit one batch after preprocessing ({reason}): "
                "does preprocessor_config.json resize or crop to one size?"
            ) from error
        return {"pixel_values": pixels}


@dataclass(frozen=True)
class TextPreprocessor:
    """A tokenizer of `transformers`. Texts beyond `max_length` tokens lose their end, None is no limit."""

    tokenizer: Any
    max_length: int | None

    def __call__(self, texts: Sequence[Text]) -> dict[str, Tensor]:
        """The tokenizer's own tensors `[B,T]`, padded to the longest text of the batch."""
        encoded = self._encode(texts, padding="longest", return_tensors="pt")
        return {name: encoded[name] for name in encoded}

    def lengths(self, texts: Sequence[Text]) -> tuple[NDArray[np.int64], int]:
        """Tokens of each text as the model sees it, `[N]`, and how many texts are truncated."""
        lengths: list[int] = []
        truncated = 0
        for start in range(0, len(texts), CHUNK):
            encodings = self._encode(texts[start : start + CHUNK], padding=False, return_tensors=None).encodings
            lengths += [len(encoding.ids) for encoding in encodings]
            truncated += sum(bool(encoding.overflowing) for encoding in encodings)
        return np.array(lengths, dtype=np.int64), truncated

    def _encode(self, texts: Sequence[Text], padding: bool | str, return_tensors: str | None) -> Any:
        limited = self.max_length is not None
        return self.tokenizer(
            list(texts),
            padding=padding,
            truncation=limited,
            max_length=self.max_length if limited else None,
            return_tensors=return_tensors,
        )


@dataclass(frozen=True)
class Preprocessor:
    """What turns raw samples into a model's inputs: images, texts (a zero-shot model has both)."""

    image: ImagePreprocessor | None
    text: TextPreprocessor | None

    def __call__(self, samples: Sequence[Any]) -> dict[str, Tensor]:
        """The tensors a forward pass takes, for B images, texts or pairs of texts.

        Raises:
            DataError: samples of a kind the model does not take.
        """
        if self.image and samples and all(isinstance(sample, Image.Image) for sample in samples):
            return self.image(samples)
        if self.text and samples and all(isinstance(sample, str | tuple) for sample in samples):
            return self.text(samples)
        raise self._unfit(samples, Image.Image if self.image else str | tuple)

    def lengths(self, texts: Sequence[Any]) -> NDArray[np.int64]:
        """Tokens of each text or pair of texts as the model sees it, `[N]`.

        Raises:
            DataError: samples of another kind, or a model that takes no texts.
        """
        if self.text is None or not all(isinstance(text, str | tuple) for text in texts):
            raise self._unfit(texts, str | tuple)
        return self.text.lengths(texts)[0]

    def _unfit(self, samples: Sequence[object], kind: type | UnionType) -> DataError:
        found = next((type(sample).__name__ for sample in samples if not isinstance(sample, kind)), "nothing")
        return DataError(f"the model takes {'PIL images' if self.image else 'texts'}, not {found}")


def preprocessor_from_folder(folder: Path, spec: ModelSpec) -> Preprocessor:
    """The preprocessing of a checkpoint folder; see `preprocessor_from_json`."""
    return preprocessor_from_json(read_preprocessing(folder), spec, str(folder), read_json(folder / "config.json"))


def preprocessor_from_json(
    files: Mapping[str, Any], spec: ModelSpec, where: str, config: Mapping[str, Any] | None = None
) -> Preprocessor:
    """The preprocessing a checkpoint carries; no code of the checkpoint's is run.

    Args:
        files: file name to content, as `read_preprocessing` returns it.
        spec: how many channels and positions the model has.
        where: the checkpoint, for messages.
        config: the model's config.json, which old processors and tokenizers need to say what they are.

    Raises:
        CheckpointError: files missing or damaged, or not of this model.
    """
    image = text = None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder, files, config or {})
        for tower in spec.towers:
            if isinstance(tower.embeddings, ImageEmbeddings):
                processor = open_image_processor(folder, files, tower.embeddings, where)
                image = ImagePreprocessor(processor, tower.embeddings.channels)
            else:
                tokenizer = open_tokenizer(folder, files, tower.embeddings, where)
                text = TextPreprocessor(tokenizer, _max_length(tokenizer, tower.embeddings))
    return Preprocessor(image, text)


def _write(folder: Path, files: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    kinds = {key: config[key] for key in ("model_type", "tokenizer_class") if config.get(key)}
    for name, content in {**files, **({"config.json": kinds} if kinds else {})}.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")


def _max_length(tokenizer: Any, embeddings: TextEmbeddings) -> int:
    named = int(tokenizer.model_max_length)
    return min(named, embeddings.max_tokens) if named < UNBOUNDED else embeddings.max_tokens
