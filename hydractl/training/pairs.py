"""Pairs of an image and a text, from any source that holds both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import datasets
import numpy as np
from PIL import Image

from hydractl.data.open import SampleStream, open_samples, open_stream
from hydractl.data.reading import EVERYTHING, DataLike, Indexed, Modality, Reading
from hydractl.data.samples import Samples
from hydractl.data.sources import DataSpec, DataValues, parse_data

Pair = tuple[Image.Image, Any]


@dataclass(frozen=True)
class Pairs(Sequence[Pair]):
    """Images, decoded when asked for, each with its text."""

    images: Sequence[Any]
    texts: Sequence[Any]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(zip(self.images[index], self.texts[index], strict=True))
        return self.images[index], self.texts[index]


def open_pairs(data: DataLike, reading: Reading = EVERYTHING) -> Samples:
    """Opens the image-text pairs of a data set.

    Args:
        data: a source (an image folder with captions in its metadata, a table, webdataset shards), or pairs in a
            list or a torch `Dataset`.

    Raises:
        DataError: a column of images or of texts is missing, or empty somewhere.
    """
    images, texts = (open_samples(one, of, reading) for one, of in _halves(data))
    # Both halves decide whether two pairs are the same.
    hashes = images.content_hashes() ^ texts.content_hashes() if len(images) else np.array([], dtype=np.uint64)
    return replace(_joined(images, texts), hashes=hashes)


@dataclass(frozen=True)
class Seconds:
    """The second one of each pair, by its place."""

    pairs: Indexed

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Any:
        return self.pairs[index][1]


@dataclass(frozen=True, eq=False)
class PairStream:
    """Image-text pairs read as they come: two streams of one source, side by side."""

    images: SampleStream
    texts: SampleStream

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.images.name

    @property
    def length(self) -> int | None:
        """The number of pairs, if known."""
        return self.images.length

    def shuffled(self, seed: int, epoch: int = 0) -> PairStream:
        """Returns the pairs in another order, the same one for the same seed and epoch."""
        return PairStream(self.images.shuffled(seed, epoch), self.texts.shuffled(seed, epoch))

    def blocks(self, size: int, start: int = 0) -> Iterator[Samples]:
        """Yields blocks of `size` pairs in order, from pair `start` on.

        Raises:
            DataError: see `SampleStream.blocks`.
        """
        for images, texts in zip(self.images.blocks(size, start), self.texts.blocks(size, start), strict=True):
            yield _joined(images, texts)


def stream_pairs(data: DataLike, reading: Reading = EVERYTHING) -> PairStream | Samples:
    """Opens the image-text pairs of a data set as a stream, which reads a source twice: for its images and its texts.

    Pairs at hand are no stream, as for `open_stream`.

    Raises:
        DataError: a column of images or of texts is missing.
    """
    images, texts = (open_stream(one, of, reading) for one, of in _halves(data))
    if isinstance(images, SampleStream) and isinstance(texts, SampleStream):
        return PairStream(images, texts)
    return open_pairs(data, reading)


def _halves(data: DataLike) -> Iterator[tuple[DataSpec | DataValues, Modality]]:
    """Yields what to open images and texts from: one source twice, or the sides of (image, text) pairs."""
    asked = parse_data(data)
    yield asked, "image"
    if isinstance(asked, DataSpec) or isinstance(asked.values, datasets.Dataset | datasets.IterableDataset):
        yield asked, "text"
    else:
        yield replace(asked, values=Seconds(asked.values)), "text"


def _joined(images: Samples, texts: Samples) -> Samples:
    return replace(images, inputs=Pairs(images.inputs, texts.inputs), labels=None, label_names=None)
