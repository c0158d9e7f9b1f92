"""Opens data: whatever a user gives, as `Samples` or as a stream of them.

    open_samples("cifar10:test[:1000]", "image")
    open_samples(datasets.Dataset.from_dict({"text": ["good", "bad"], "label": [1, 0]}), "text")
    open_samples(torchvision.datasets.CIFAR10(folder), "image")   # any torch `Dataset` of (image or text, label)
    open_samples([(image, "cat"), (other, "dog")], "image")       # or of inputs alone
    open_samples({"reviews": ["good", "bad"]}, "text")            # texts by a name: a bare `str` is a source

Several data sets in one value, as OOD data often are, come apart by `hydractl.data.spec.parse_data_sets`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import datasets
import numpy as np

from hydractl.data.classes import only_classes
from hydractl.data.columns import Columns
from hydractl.data.like import DataLike, Modality
from hydractl.data.rows import read_table
from hydractl.data.samples import Samples, few_for_chance, spread
from hydractl.data.spec import DataSpec, DataValues, parse_data
from hydractl.data.streams import SampleStream, stream_rows
from hydractl.data.tables import open_rows, open_table
from hydractl.data.values import read_values
from hydractl.errors import DataError


def open_samples(
    data: DataLike | DataSpec | DataValues,
    modality: Modality,
    *,
    columns: Columns | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    name: str = "data",
) -> Samples:
    """The samples of one data set, whatever it is given as.

    Args:
        data: a source, a `datasets.Dataset`, or samples by their place: inputs, or `(input, label)`. Images are those
            of Pillow or uint8 arrays `[height,width(,3)]`, texts are strings or pairs of strings, labels whole
            numbers or class names. Class names of numbers are taken from a `datasets.Dataset` and from `classes`,
            as torchvision's data sets have them.
        modality: what the model takes, `image` or `text`.
        columns: columns the user named; the others are detected.
        limit: use so many samples, spread evenly over the data, all by default.
        skip_bad: leave unreadable images and empty texts out (decodes every image once now) and say which.
        name: of values that have none of their own.

    Raises:
        DataError: nothing there, no such split or column, no samples, a sample that is neither image nor text, or
            empty texts without `skip_bad`.
    """
    asked = _parsed(data, name)
    samples = _opened(asked, modality, _columns(asked, columns), limit, skip_bad)
    if samples.notes or (isinstance(asked, DataSpec) and asked.only is not None):
        return samples
    remedy = ": where data lie in order of class, take a part (%1/10) and no slice" if _is_slice(asked) else ""
    return replace(samples, notes=tuple(note + remedy for note in few_for_chance(samples, str(asked))))


def notes_of(samples: Samples | SampleStream) -> Iterator[str]:
    """What a user should know of how samples were read: what was left out or looks odd."""
    yield from samples.notes
    if isinstance(samples, Samples) and samples.skipped:
        first, *others = samples.skipped
        yield "\n      ".join([f"{samples.name}: {len(samples.skipped)} samples left out: {first}", *others])


def _is_slice(asked: DataSpec | DataValues) -> bool:
    return isinstance(asked, DataSpec) and "[" in (asked.split or "")


def _opened(
    asked: DataSpec | DataValues, modality: Modality, columns: Columns, limit: int | None, skip_bad: bool
) -> Samples:
    if isinstance(asked, DataSpec) and (asked.part is not None or asked.only is not None):
        return _subset(read_table(open_table(asked), asked, modality, columns, None, skip_bad), asked, limit)
    if isinstance(asked, DataSpec):
        return read_table(open_table(asked), asked, modality, columns, limit, skip_bad)
    if isinstance(asked.values, datasets.Dataset):
        return read_table(asked.values, asked, modality, columns, limit, skip_bad)
    if isinstance(asked.values, datasets.IterableDataset):
        raise DataError(f"{asked}: an IterableDataset has no end that is known: pass `streaming`, or a Dataset")
    return read_values(asked, modality, limit, skip_bad)


def open_stream(
    data: DataLike | DataSpec | DataValues,
    modality: Modality,
    *,
    columns: Columns | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    name: str = "data",
) -> SampleStream | Samples:
    """The samples of one data set as a stream, read no further than it takes to know its columns.

    Lists and torch data sets are at hand already: these are opened as `open_samples` opens them.

    Args:
        data: as for `open_samples`; an `IterableDataset` will do as well.
        columns: columns the user named; the others are detected.
        limit: take the first so many. Data sorted by class then give a few classes only: where that can be, leave
            the limit out or use `open_samples`, whose limit is spread over the data.
        skip_bad: leave unreadable images and empty texts out; each block says which.
        name: of values that have none of their own.

    Raises:
        DataError: nothing there, no such split or column, or a slice that counts from an unknown end.
    """
    asked = _parsed(data, name)
    columns = _columns(asked, columns)
    if isinstance(asked, DataSpec):
        if asked.part is not None or asked.only is not None:
            raise DataError(f"{asked}: a part is told apart by all samples: leave `streaming` out, or the part")
        rows, length = open_rows(asked)
    elif isinstance(asked.values, datasets.Dataset):
        rows, length = asked.values.to_iterable_dataset(), len(asked.values)
    elif isinstance(asked.values, datasets.IterableDataset):
        rows, length = asked.values, None
    else:
        return read_values(asked, modality, limit, skip_bad)
    return stream_rows(rows, length, asked, modality, columns, limit, skip_bad)


def _parsed(data: DataLike | DataSpec | DataValues, name: str) -> DataSpec | DataValues:
    return data if isinstance(data, DataSpec | DataValues) else parse_data(data, name)


def _columns(asked: DataSpec | DataValues, columns: Columns | None) -> Columns:
    """The columns to take: those that the data set's own name says come first."""
    named = columns or Columns()
    own = dict(asked.columns) if isinstance(asked, DataSpec) else {}
    # Columns that need not be there are named for other sets: one that says its own has no use for them.
    return replace(named if named.strict else Columns(), **own, strict=True) if own else named


def _subset(whole: Samples, asked: DataSpec, limit: int | None) -> Samples:
    """The samples of a part or of some classes, or so many of them, spread evenly."""
    if asked.only is not None:
        whole = only_classes(whole, asked.only)
    positions = np.arange(len(whole)) if asked.part is None else asked.part.of(whole.content_hashes())
    if not len(positions):
        raise DataError(f"{whole.name}{asked.part}: holds none of the {len(whole)} samples: take fewer parts")
    return whole.subset(positions[list(spread(len(positions), limit))])
