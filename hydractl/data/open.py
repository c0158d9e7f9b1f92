"""Opens data: whatever a user gives, as `Samples` or as a stream of them.

    open_samples("cifar10:test[:1000]", "image")
    open_samples(datasets.Dataset.from_dict({"text": ["good", "bad"], "label": [1, 0]}), "text")
    open_samples(torchvision.datasets.CIFAR10(folder), "image")   # any torch `Dataset` of (image or text, label)
    open_samples([(image, "cat"), (other, "dog")], "image")       # or of inputs alone
    open_samples({"reviews": ["good", "bad"]}, "text")            # texts by a name: a bare `str` is a source

`hydractl.data.sources.parse_data_sets` divides several data sets in one value, as OOD data often are.

A stream reads a source as it comes: `blocks` yields one `Samples` after the other, each of which works wherever samples
do (`match_labels`, `content_hashes`, `make_batches`), and one of them at a time is in memory. `through` names what
must happen to every block, whoever reads it:

    stream = open_stream(data, "image").through(lambda block: match_labels(block, model.labels))
    for batch in StreamedBatches(stream, preprocessor, batch_size=64):  # evaluation: in the source's order
        ...
    for block in stream.shuffled(seed, epoch).blocks(1024, start):  # training: one epoch, from sample `start` on
        ...

Each of these loops reads the source anew, from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import datasets
import numpy as np

from hydractl.data.labels import only_classes
from hydractl.data.reading import EVERYTHING, DataLike, Modality, Reading
from hydractl.data.rows import Request, read_samples, read_table, read_values
from hydractl.data.samples import Samples, few_for_chance, spread
from hydractl.data.sources import DataSpec, DataValues, parse_data
from hydractl.data.table_columns import ChosenColumns, Columns, choose_columns, nested_columns, value_at
from hydractl.data.tables import one_line_errors, open_rows, open_table
from hydractl.errors import DataError

Change = Callable[[Samples], Samples]

PEEK = 1000  # rows by which the columns of a file without types, as CSV is, are understood
SHUFFLE_BUFFER = 10_000


def open_samples(
    data: DataLike | DataSpec | DataValues,
    modality: Modality,
    reading: Reading = EVERYTHING,
    *,
    strict: bool = True,
    skip_bad: bool = False,
    name: str = "data",
) -> Samples:
    """Returns the samples of one data set, whatever it is given as.

    Args:
        data: a source, a `datasets.Dataset`, or samples by their place: inputs, or `(input, label)`. Images are those
            of Pillow or uint8 arrays `[height,width(,3)]`, texts are strings or pairs of strings, labels whole
            numbers or class names. Class names of numbers are taken from a `datasets.Dataset` and from `classes`,
            as torchvision's data sets have them.
        modality: what the model takes, `image` or `text`.
        reading: the columns and the limit, so many samples spread evenly over the data.
        strict: whether a named column must be there; otherwise detection takes over.
        skip_bad: leave unreadable images and empty texts out (decodes every image once now) and say which.
        name: of values that have none of their own.

    Raises:
        DataError: nothing there, no such split or column, no samples, a sample that is neither image nor text, or
            empty texts without `skip_bad`.
    """
    request = _request(data, modality, reading, strict=strict, skip_bad=skip_bad, name=name)
    samples = _opened(request)
    spec = request.data
    if samples.notes or (isinstance(spec, DataSpec) and spec.only is not None):
        return samples
    sliced = isinstance(spec, DataSpec) and "[" in (spec.split or "")
    remedy = ": where data lie in order of class, take a part (%1/10) and no slice" if sliced else ""
    return replace(samples, notes=tuple(note + remedy for note in few_for_chance(samples, str(spec))))


def _request(
    data: DataLike | DataSpec | DataValues,
    modality: Modality,
    reading: Reading,
    *,
    strict: bool,
    skip_bad: bool,
    name: str,
) -> Request:
    """Returns what to read; the columns that a data set's own name says come first."""
    found = parse_data(data, name)
    own = dict(found.columns) if isinstance(found, DataSpec) else {}
    columns = Columns(reading.image_column, reading.text_column, reading.label_column, strict)
    if own:
        # Columns that need not be there are named for other sets: one that says its own has no use for them.
        columns = replace(columns if strict else Columns(), **own, strict=True)
    return Request(found, modality, columns, reading.limit, skip_bad=skip_bad)


def _opened(request: Request) -> Samples:
    data = request.data
    if isinstance(data, DataSpec):
        if data.part is None and data.only is None:
            return read_table(open_table(data), request)
        return _subset(read_table(open_table(data), replace(request, limit=None)), data, request.limit)
    if isinstance(data.values, datasets.Dataset):
        return read_table(data.values, request)
    if isinstance(data.values, datasets.IterableDataset):
        raise DataError(f"{data}: an IterableDataset has no end that is known: pass `streaming`, or a Dataset")
    return read_values(request)


def _subset(whole: Samples, spec: DataSpec, limit: int | None) -> Samples:
    """Returns the samples of a part or of some classes, or so many of them, spread evenly."""
    if spec.only is not None:
        whole = only_classes(whole, spec.only)
    positions = np.arange(len(whole)) if spec.part is None else spec.part.of(whole.content_hashes())
    if not len(positions):
        raise DataError(f"{whole.name}{spec.part}: holds none of the {len(whole)} samples: take fewer parts")
    return whole.subset(positions[list(spread(len(positions), limit))])


def open_stream(
    data: DataLike | DataSpec | DataValues,
    modality: Modality,
    reading: Reading = EVERYTHING,
    *,
    strict: bool = True,
    skip_bad: bool = False,
    name: str = "data",
) -> SampleStream | Samples:
    """Returns the samples of one data set as a stream, read no further than it takes to know its columns.

    Lists and torch data sets are at hand already: these are opened as `open_samples` opens them.

    Args:
        data: as for `open_samples`; an `IterableDataset` will do as well.
        reading: the columns and the limit, the first so many. Data sorted by class then give a few classes only: where
            that can be, leave the limit out or use `open_samples`, whose limit is spread over the data.
        strict: whether a named column must be there; otherwise detection takes over.
        skip_bad: leave unreadable images and empty texts out; each block says which.
        name: of values that have none of their own.

    Raises:
        DataError: nothing there, no such split or column, or a slice that counts from an unknown end.
    """
    request = _request(data, modality, reading, strict=strict, skip_bad=skip_bad, name=name)
    found = request.data
    if isinstance(found, DataSpec):
        if found.part is not None or found.only is not None:
            raise DataError(f"{found}: a part is told apart by all samples: leave `streaming` out, or the part")
        return _stream(*open_rows(found), request)
    if isinstance(found.values, datasets.Dataset):
        return _stream(found.values.to_iterable_dataset(), len(found.values), request)
    if isinstance(found.values, datasets.IterableDataset):
        return _stream(found.values, None, request)
    return read_values(request)


def notes_of(samples: Samples | SampleStream) -> Iterator[str]:
    """Yields what a user should know of how samples were read: what was left out or looks odd."""
    yield from samples.notes
    if isinstance(samples, Samples) and samples.skipped:
        first, *others = samples.skipped
        yield "\n      ".join([f"{samples.name}: {len(samples.skipped)} samples left out: {first}", *others])


@dataclass(frozen=True, eq=False)
class SampleStream:
    """Samples of one data set in its order; `length` is None where their number shows only at the end."""

    request: Request
    rows: datasets.IterableDataset
    features: datasets.Features
    chosen_columns: ChosenColumns
    length: int | None
    notes: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def name(self) -> str:
        """The name in messages and reports."""
        return self.request.data.name

    @property
    def modality(self) -> Modality:
        """Images or texts."""
        return self.request.modality

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The classes that bare numbers in the label column stand for; None also for words, which come in blocks."""
        feature = self.features.get(self.chosen_columns.label)
        return tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else None

    def through(self, change: Change) -> SampleStream:
        """Returns the same stream, every block of which passes through `change`: to match labels, to check."""
        return replace(self, changes=(*self.changes, change))

    def shuffled(self, seed: int, epoch: int = 0, buffer: int = SHUFFLE_BUFFER) -> SampleStream:
        """Returns the same samples in another order, the same one for the same seed and epoch.

        Files are taken in random order and samples drawn from a buffer of so many: data sorted by class within one
        file stay sorted but for the buffer.
        """
        # The epoch goes into the seed: `set_epoch` would be lost on the rows that `skip` makes of these.
        drawn = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
        return replace(self, rows=self.rows.shuffle(seed=drawn, buffer_size=buffer))

    def blocks(self, size: int, start: int = 0) -> Iterator[Samples]:
        """Yields so many samples after the other; a block may have fewer at the end, or where bad ones are left out.

        Args:
            start: how many samples to pass over.

        Raises:
            DataError: there are no samples, one cannot be read, or a change refuses them.
        """
        read, kept = start, 0
        for table in self._tables(size, start):
            samples = read_samples(table, self.request, self.chosen_columns, read)
            read += len(table)
            for change in self.changes:
                samples = change(samples)
            kept += len(samples)
            if len(samples):
                yield samples
        if not kept and read > start:
            raise DataError(f"{self.request}: not one of {read - start} samples can be read")
        if not read:
            raise DataError(f"{self.request}: holds no samples")

    def _tables(self, size: int, start: int) -> Iterator[datasets.Dataset]:
        rows = (self.rows.skip(start) if start else self.rows).iter(batch_size=size)
        while True:
            with one_line_errors(str(self.request)):
                columns = next(rows, None)
                if columns is None:
                    return
                table = datasets.Dataset.from_dict(columns, features=self.features)
            yield table


def _stream(rows: datasets.IterableDataset, length: int | None, request: Request) -> SampleStream:
    """Returns the samples in rows that come one after the other; `length` is their number, where that is known."""
    where = str(request)
    with one_line_errors(where):
        known = rows.features or _peeked(rows, where)
        if nested := nested_columns(known, request.columns):
            known = datasets.Features({**known, **nested})
            rows = rows.map(partial(_values_at, names=tuple(nested)), features=known)
        empty = datasets.Dataset.from_dict({name: [] for name in known}, features=known)
    chosen = choose_columns(empty, request.modality, request.columns, where)
    wanted = [*chosen.inputs, *([chosen.label] if chosen.label else [])]
    rows = rows.select_columns(wanted)
    features = datasets.Features({name: known[name] for name in wanted})
    for name in wanted:
        if isinstance(features[name], datasets.Image):
            features[name] = datasets.Image(decode=False)
            rows = rows.cast_column(name, features[name])
    notes: tuple[str, ...] = ()
    if (limit := request.limit) is not None:
        rows, length = rows.take(limit), None if length is None else min(limit, length)
        notes = (f"{where}: takes the first {limit} samples: of data sorted by class that is no fair sample",)
    return SampleStream(request, rows, features, chosen, length=length, notes=notes)


def _values_at(row: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value_at(row, name) for name in names}


def _peeked(rows: datasets.IterableDataset, where: str) -> datasets.Features:
    columns: dict[str, list[Any]] | None = next(rows.iter(batch_size=PEEK), None)
    if columns is None:
        raise DataError(f"{where}: holds no samples")
    return datasets.Dataset.from_dict(columns).features
