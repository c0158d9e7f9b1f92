"""Raw images and texts as a model's inputs, by the image processors and tokenizers of `transformers`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.sentences import TEXTS
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import ImageEmbeddings, TextEmbeddings
from hydractl.data.images import is_one_image, with_channels
from hydractl.data.processors import (
    TEXT_FILES,
    TOKENIZERS,
    clean_as_open_clip,
    failing_as,
    open_image_processor,
    open_tokenizer,
    refuse_bare,
    refuse_unembedded,
    unembedded,
)
from hydractl.data.words import WordPlace, word_places
from hydractl.errors import DataError
from hydractl.text import first_sentence, shortened
from hydractl.watch import LOG

if TYPE_CHECKING:
    from hydractl.data.reading import Text

CHUNK = 1024  # texts measured at a time
#: The keys by which settings of an image processor name its class.
NAMING = {"image_processor_type", "feature_extractor_type", "pretrained_cfg"}


@dataclass(frozen=True)
class ImagePreprocessor:
    """An image processor of `transformers`, fed with images of as many channels as the model has."""

    processor: Any
    channels: int

    def __call__(self, images: Iterable[object]) -> dict[str, Tensor]:
        """Returns `pixel_values` `[B,channels,height,width]` float32, as the processor makes them of grey or RGB.

        Raises:
            DataError: the images come out in different sizes, or one cannot be read.
        """
        # One by one: decoded, a batch of photographs takes gigabytes.
        parts = [self._pixels(image) for image in images]
        sizes = [list(part.shape[1:]) for part in parts]
        if any(size != sizes[0] for size in sizes):
            raise DataError(
                f"{len(parts)} images do not fit one batch, they come out as {min(sizes)} and {max(sizes)}: "
                "does preprocessor_config.json resize or crop to one size?"
            )
        return {"pixel_values": torch.cat(parts)}

    def _pixels(self, image: object) -> Tensor:
        prepared = with_channels(image, self.channels)
        try:
            pixels: Tensor = self.processor(images=[prepared], return_tensors="pt")["pixel_values"]
        except ValueError as error:
            size = f"{prepared.width} x {prepared.height}"
            raise DataError(f"the model's image processor fails on an image of {size} pixels: {error}") from error
        return pixels


@dataclass(frozen=True)
class TextPreprocessor:
    """A tokenizer of `transformers`. Texts beyond `max_length` tokens lose their end.

    `filled` pads all texts to that length, and the padding is text to the model. `types` tells whether the model tells
    types of sentences apart, `by_word` whether it answers for each word. `strange` are tokens that the model does not
    embed, by their numbers. `clean` changes a text before the tokenizer reads it.
    """

    tokenizer: Any
    max_length: int
    filled: bool = False
    types: bool = True
    by_word: bool = False
    strange: Mapping[int, str] = field(default_factory=dict)
    clean: Callable[[str], str] = str

    def __call__(self, texts: Sequence[Text]) -> dict[str, Tensor]:
        """Returns the tokenizer's own tensors `[B,T]`, padded to the longest text of the batch.

        Raises:
            DataError: a text has a token that the model does not embed, or none.
        """
        encoded = self._encode(texts, padding="max_length" if self.filled else "longest", return_tensors="pt")
        if not self.filled:
            refuse_bare(encoded.encodings, texts)
        if self.strange:
            refuse_unembedded(encoded["input_ids"].flatten().tolist(), self.strange)
        if self.filled:
            return {"input_ids": encoded["input_ids"]}
        # Many tokenizers number sentences for models that have no embeddings of them, or only one.
        left_out = () if self.types else ("token_type_ids",)
        return {key: tensor for key, tensor in encoded.items() if key not in left_out}

    def opened(self) -> dict[str, Any]:
        """Returns the files of the tokenizer as it was opened, by which `tokenizers` alone does the same.

        It cuts and pads by itself, and tokenizer_config.json says what the other file has no place for.
        """
        from tokenizers import Tokenizer

        tokenizer, length = self.tokenizer, self.max_length
        backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        backend.enable_truncation(length, direction=tokenizer.truncation_side)
        backend.enable_padding(
            pad_id=tokenizer.pad_token_id,
            pad_token=tokenizer.pad_token,
            pad_type_id=tokenizer.pad_token_type_id,
            length=length if self.filled else None,
        )
        names = [name for name in tokenizer.model_input_names if self.types or name != "token_type_ids"]
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": length,
            "truncation_side": tokenizer.truncation_side,
            "padding_side": "right",
            "model_input_names": names,
            "split_special_tokens": tokenizer.split_special_tokens,
            **tokenizer.special_tokens_map,
        }
        return {"tokenizer.json": json.loads(backend.to_str()), "tokenizer_config.json": settings}

    def lengths(self, texts: Sequence[Text]) -> tuple[NDArray[np.int64], int]:
        """Returns the tokens of each text as the model sees it, `[N]`, and how many texts are truncated."""
        lengths: list[int] = []
        truncated = 0
        for start in range(0, len(texts), CHUNK):
            encodings = self._encode(texts[start : start + CHUNK], padding=False, return_tensors=None).encodings
            lengths += [len(encoding.ids) for encoding in encodings]
            truncated += sum(bool(encoding.overflowing) for encoding in encodings)
        return np.array(lengths, dtype=np.int64), truncated

    def words(self, texts: Sequence[str]) -> list[list[WordPlace]]:
        """Returns the words of each text that the model reads; none beyond its largest length."""
        encodings = self._encode(texts, padding=False, return_tensors=None).encodings
        return [word_places(text, encoding, self.tokenizer) for text, encoding in zip(texts, encodings, strict=True)]

    def _encode(self, texts: Sequence[Text], padding: bool | str, return_tensors: str | None) -> Any:
        with failing_as(lambda reason: _unreadable(texts, reason)):
            return self.tokenizer(
                [self.clean(text) if isinstance(text, str) else text for text in texts],
                padding=padding,
                truncation=True,
                max_length=self.max_length,
                return_tensors=return_tensors,
            )


def _unreadable(texts: Sequence[Text], reason: str) -> DataError:
    first = shortened(" | ".join([texts[0]] if isinstance(texts[0], str) else texts[0]), 40)
    several = f"{len(texts)} texts from {first!r} on" if len(texts) > 1 else repr(first)
    return DataError(
        f"the model's tokenizer fails on {several} ({first_sentence(reason).rstrip('.')}): "
        "fetch the model's tokenizer again, or leave out the text"
    )


@dataclass(frozen=True)
class Preprocessor:
    """Turns raw samples into a model's inputs: images, texts (a zero-shot model has both), or pairs of the two."""

    image: ImagePreprocessor | None
    text: TextPreprocessor | None

    def __call__(self, samples: Iterable[Any]) -> dict[str, Tensor]:
        """Returns the tensors a forward pass takes, for B images, texts, pairs of texts, or pairs (image, text).

        Reads each sample once, in order. A model of images and texts takes a string for a text, not for a path.

        Raises:
            DataError: samples of another modality, or one that cannot be read.
        """
        coming = iter(samples)
        first = next(coming, None)
        if self.image and self.text and isinstance(first, tuple) and not isinstance(first[0], str):
            images, texts = zip(first, *coming, strict=True)
            return {**self.image(images), **self.text(texts)}
        if self.text and isinstance(first, str | tuple):
            return self.text([*self._texts(chain([first], coming))])
        if self.image and first is not None:
            return self.image(chain([first], coming))
        raise self._unfit(first)

    def each(self, samples: object) -> Iterable[Any]:
        """Returns the inputs of a prediction one after the other, also where there is one alone.

        Strings are texts to a model that answers texts, and paths to any other.
        """
        if isinstance(samples, str) or is_one_image(samples) or not isinstance(samples, Iterable):
            samples = [samples]
        if self.image is None:
            return samples
        return (Path(sample) if isinstance(sample, str) else sample for sample in samples)

    @property
    def by_word(self) -> bool:
        """True if the model answers for each word of a text."""
        return self.text is not None and self.text.by_word

    def words(self, texts: Sequence[Any]) -> list[list[WordPlace]]:
        """Returns the words of each text that a model of words reads.

        Raises:
            DataError: a pair of texts.
        """
        if pair := next((text for text in texts if not isinstance(text, str)), None):
            raise DataError(f"the model labels the words of one text, not of {type(pair).__name__}: name one column")
        assert self.text is not None
        return self.text.words(texts)

    def _texts(self, samples: Iterable[Any]) -> Iterator[Any]:
        for sample in samples:
            if not isinstance(sample, str | tuple):
                raise self._unfit(sample)
            yield sample

    def _unfit(self, sample: object) -> DataError:
        kind = "nothing" if sample is None else type(sample).__name__
        return DataError(f"the model takes {'images' if self.image else 'texts'}, not {kind}: leave it out")

    def lengths(self, texts: Sequence[Any]) -> tuple[NDArray[np.int64], int]:
        """Returns the tokens of each text or pair of texts as the model sees it, `[N]`, and how many are truncated.

        Raises:
            DataError: samples of another modality, or a model that takes no texts.
        """
        if self.text is None or (len(texts) and not isinstance(texts[0], str | tuple)):
            raise self._unfit(texts[0] if len(texts) else None)
        return self.text.lengths(texts)


def preprocessor_from_json(
    files: Mapping[str, Any], spec: ModelSpec, where: str, config: Mapping[str, Any] | None = None
) -> Preprocessor:
    """Returns the preprocessing of a checkpoint, without running code of the checkpoint.

    Args:
        files: file name to content, as `read_preprocessing` returns it.
        spec: the model's channels and positions.
        where: the checkpoint, for messages.
        config: the model's config.json, which names the class of old processors and tokenizers.

    Raises:
        CheckpointError: files are missing, damaged, or of another model.
    """
    image = text = None
    with _folder(files, config or {}) as folder:
        for tower in spec.towers:
            if isinstance(tower.embeddings, ImageEmbeddings):
                processor = open_image_processor(folder, files, tower.embeddings, where)
                image = ImagePreprocessor(processor, tower.embeddings.channels)
            else:
                text = _open_text(folder, files, tower.embeddings, where)
    clean = clean_as_open_clip if "model_cfg" in (config or {}) else str
    return Preprocessor(image, text and replace(text, by_word=spec.by_token, clean=clean))


def _open_text(folder: Path, files: Mapping[str, Any], embeddings: TextEmbeddings, where: str) -> TextPreprocessor:
    tokenizer = open_tokenizer(folder, files, embeddings, where)
    length = min(int(tokenizer.model_max_length), embeddings.max_tokens)
    if strange := unembedded(tokenizer.get_vocab(), embeddings):
        LOG.warn(f"note: {where}: its tokenizer has {len(strange)} tokens that the model does not embed")
    return TextPreprocessor(tokenizer, length, embeddings.filled, types=embeddings.token_types > 1, strange=strange)


def as_opened(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the preprocessing of a checkpoint as it is opened, so that each library reads it alike.

    Where older files name no class, transformers takes that of the config's `model_type`, which files elsewhere lack.

    Raises:
        CheckpointError: it cannot be opened.
    """
    opened = dict(checkpoint.preprocessing)
    with _folder(opened, checkpoint.config) as folder:
        for tower in checkpoint.spec.towers:
            if isinstance(tower.embeddings, ImageEmbeddings):
                opened |= _with_class(folder, opened, tower.embeddings, checkpoint.name)
            elif opened.keys() & TOKENIZERS:
                text = _open_text(folder, opened, tower.embeddings, checkpoint.name)
                others = {name: content for name, content in opened.items() if name not in (*TEXT_FILES, TEXTS)}
                opened = {**others, **text.opened()}
    return opened


def _with_class(folder: Path, files: Mapping[str, Any], embeddings: ImageEmbeddings, where: str) -> dict[str, Any]:
    """Returns the file of an image processor with its class, if it names none."""
    outer = files.get("processor_config.json", {})
    nested = outer.get("image_processor")
    settings = nested or files.get("preprocessor_config.json")
    if not isinstance(settings, dict) or settings.keys() & NAMING:
        return {}
    processor = open_image_processor(folder, files, embeddings, where)
    settings = {**settings, "image_processor_type": type(processor).__name__}
    if nested:
        return {"processor_config.json": {**outer, "image_processor": settings}}
    return {"preprocessor_config.json": settings}


def for_transformers(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """Returns the preprocessing of a checkpoint in files that transformers understands whole."""
    return as_opened(checkpoint) if TEXTS in checkpoint.preprocessing else checkpoint.preprocessing


@contextmanager
def _folder(files: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Path]:
    """Writes preprocessing into a folder for a while, for libraries that read only folders."""
    kinds = {key: config[key] for key in ("model_type", "tokenizer_class") if config.get(key)}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, content in {**files, **({"config.json": kinds} if kinds else {})}.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / name).write_text(text, encoding="utf-8")
        yield folder
