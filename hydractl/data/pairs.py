"""Pairs of an image and a text, opened as two data sets."""

from dataclasses import replace
from functools import partial
from typing import Any

import datasets
from torch.utils.data import StackDataset

from hydractl.data.images import Lazy
from hydractl.data.open import open_samples
from hydractl.data.reading import EVERYTHING, DataLike, Indexed, Reading
from hydractl.data.samples import Samples
from hydractl.data.sources import DataValues, parse_data


def open_pairs(data: DataLike, reading: Reading = EVERYTHING) -> Samples:
    """Opens the image-text pairs of a data set.

    Args:
        data: a source (an image folder with captions in its metadata, a table, webdataset shards), or pairs in a
            list or a torch `Dataset`.

    Raises:
        DataError: a column of images or of texts is missing, or empty somewhere.
    """
    # One source is read twice; pairs in memory are (image, text), of which each side is.
    spec = parse_data(data)
    images = open_samples(spec, "image", replace(reading, text_column=None))
    if isinstance(spec, DataValues) and not isinstance(spec.values, datasets.Dataset):
        spec = replace(spec, values=Lazy(range(len(spec.values)), partial(_second, spec.values)))
    texts = open_samples(spec, "text", replace(reading, image_column=None))
    # Both halves decide whether two pairs are the same.
    hashes = images.content_hashes() ^ texts.content_hashes()
    both: Any = StackDataset(images.inputs, texts.inputs)  # type: ignore[arg-type]
    inputs = Lazy(range(len(images)), both.__getitem__)
    return replace(images, inputs=inputs, labels=None, label_names=None, hashes=hashes)


def _second(pairs: Indexed, place: int) -> Any:
    return pairs[place][1]
