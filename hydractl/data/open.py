"""Opens data: whatever a user gives, as `Samples` or as a stream of them.

    open_samples("cifar10:test[:1000]", "image")
    open_samples(datasets.Dataset.from_dict({"text": ["good", "bad"], "label": [1, 0]}), "text")
    open_samples(torchvision.datasets.CIFAR10(folder), "image")   # any torch `Dataset` of (image or text, label)
    open_samples([(image, "cat"), (other, "dog")], "image")       # or of inputs alone
    open_samples({"reviews": ["good", "bad"]}, "text")            # texts by a name: a bare `str` is a source

`hydractl.data.sources.parse_data_sets` divides several data sets in one value, as OOD data often are.

A stream holds one block of samples in memory at a time. `blocks` yields each block as `Samples`, so that
`match_labels`, `content_hashes` and `make_batches` work on it. `through` adds a change that every block passes:

    stream = open_stream(data, "image").through(lambda block: match_labels(block, model.labels))
    for batch in StreamedBatches(stream, preprocessor, batch_size=64):  # evaluation: in the source's order
        ...
    for block in stream.shuffled(seed, epoch).blocks(1024, start):  # training: one epoch, from sample `start` on
        ...

Each of these loops reads the source again, from its start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from hydractl.data.labels import only_classes
from hydractl.data.reading import EVERYTHING, DataLike, Modality, Reading
from hydractl.data.rows import Request, read_samples, read_table, read_values
from hydractl.data.samples import Samples, few_for_chance, spread
from hydractl.data.sources import DataSpec, DataValues, parse_data
from hydractl.data.table_columns import ChosenColumns, nested_columns
from hydractl.errors import DataError

if TYPE_CHECKING:
    import datasets

Change = Callable[[Samples], Samples]

PEEK = 1000  # rows that show the types of the columns in a file without types, such as CSV
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
    """Returns the samples of one data set.

    Args:
        data: a source, a `datasets.Dataset`, or samples by their place: inputs, or `(input, label)`. Images are those
            of Pillow or uint8 arrays `[height,width(,3)]`, texts are strings or pairs of strings, labels whole
            numbers or class names. Class names of numbers are taken from a `datasets.Dataset` and from `classes`,
            as torchvision's data sets have them.
        modality: what the model takes, `image` or `text`.
        reading: the columns and the limit, which spreads the samples evenly over the data.
        strict: whether a named column must be there; otherwise detection takes over.
        skip_bad: leave out unreadable images and empty texts (decodes every image once now) and list them.
        name: of values that have none of their own.

    Raises:
        DataError: no such source, split or column, no samples, a sample that is neither image nor text, or empty
            texts without `skip_bad`.
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
    """Returns the request; columns in the name of a data set come before those of all sets."""
    found = parse_data(data, name)
    if isinstance(found, DataSpec) and found.columns:
        if not strict:  # the other named columns are those of other data sets
            reading = replace(reading, image_column=None, text_column=None, label_column=None)
        own: dict[str, Any] = {f"{kind}_column": column for kind, column in found.columns}
        reading = replace(reading, **own)
        strict = True
    return Request(found, modality, reading, strict=strict, skip_bad=skip_bad)


def _opened(request: Request) -> Samples:
    data = request.data
    if isinstance(data, DataSpec):
        from hydractl.data.tables import open_table

        if data.part is None and data.only is None:
            return read_table(open_table(data), request)
        whole = replace(request, reading=replace(request.reading, limit=None))
        return _subset(read_table(open_table(data), whole), data, request.reading.limit)
    if _is_table(data.values):
        return read_table(data.values, request)
    if _is_stream(data.values):
        raise DataError(f"{data}: the length of an IterableDataset is unknown: pass `streaming`, or a Dataset")
    return read_values(request)


def _is_table(values: object) -> TypeGuard[datasets.Dataset]:
    # A library that is not loaded made none of the values, and this one takes two seconds to load.
    return "datasets" in sys.modules and isinstance(values, sys.modules["datasets"].Dataset)


def _is_stream(values: object) -> TypeGuard[datasets.IterableDataset]:
    return "datasets" in sys.modules and isinstance(values, sys.modules["datasets"].IterableDataset)


def _subset(whole: Samples, spec: DataSpec, limit: int | None) -> Samples:
    """Returns the samples of a part or of some classes, at most `limit` of them, spread evenly."""
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
    """Returns one data set as a stream; lists and torch data sets are opened as by `open_samples`.

    Args:
        data, modality, strict, skip_bad, name: as for `open_samples`; an `IterableDataset` is data too.
        reading: the columns and the limit, which takes the first samples. Of data sorted by class these are of few
            classes: leave the limit out, or use `open_samples`, which spreads it over the data.

    Raises:
        DataError: no such source, split or column, or a slice that counts from an unknown end.
    """
    request = _request(data, modality, reading, strict=strict, skip_bad=skip_bad, name=name)
    found = request.data
    if isinstance(found, DataSpec):
        if found.part is not None or found.only is not None:
            raise DataError(f"{found}: a part or a class subset needs all samples: leave `streaming` out, or the part")
        from hydractl.data.tables import open_rows

        return _stream(*open_rows(found), request)
    if _is_table(found.values):
        return _stream(found.values.to_iterable_dataset(), len(found.values), request)
    if _is_stream(found.values):
        return _stream(found.values, None, request)
    return read_values(request)


def notes_of(samples: Samples | SampleStream) -> Iterator[str]:
    """Yields notes for the user on how samples were read, and which were left out."""
    yield from samples.notes
    if isinstance(samples, Samples) and samples.skipped:
        first, *others = samples.skipped
        yield "\n      ".join([f"{samples.name}: {len(samples.skipped)} samples left out: {first}", *others])


@dataclass(frozen=True, eq=False)
class SampleStream:
    """Samples of one data set in its order; `length` is None where only the end shows their number."""

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
        """The class names of numbered labels; None also for labels that are words, which each block lists."""
        import datasets

        feature = self.features.get(self.chosen_columns.label)
        return tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else None

    def through(self, change: Change) -> SampleStream:
        """Returns the same stream with a change of every block, such as matched labels or a check."""
        return replace(self, changes=(*self.changes, change))

    def shuffled(self, seed: int, epoch: int = 0, buffer: int = SHUFFLE_BUFFER) -> SampleStream:
        """Returns the same samples in another order, the same one for the same seed and epoch.

        Files come in random order, and samples are drawn from a buffer of `buffer` samples. Data sorted by class within
        one file stay roughly sorted.
        """
        # The epoch goes into the seed, because `skip` would lose a `set_epoch`.
        drawn = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
        return replace(self, rows=self.rows.shuffle(seed=drawn, buffer_size=buffer))

    def blocks(self, size: int, start: int = 0) -> Iterator[Samples]:
        """Yields blocks of `size` samples; fewer at the end, or where bad ones are left out.

        Args:
            start: the number of samples to skip.

        Raises:
            DataError: no samples, one that cannot be read, or one that a change refuses.
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
        import datasets

        from hydractl.data.tables import one_line_errors

        rows = (self.rows.skip(start) if start else self.rows).iter(batch_size=size)
        while True:
            with one_line_errors(str(self.request)):
                columns = next(rows, None)
                if columns is None:
                    return
                table = datasets.Dataset.from_dict(columns, features=self.features)
            yield table


def _stream(rows: datasets.IterableDataset, length: int | None, request: Request) -> SampleStream:
    """Returns a stream of rows; `length` is their number, if it is known."""
    import datasets

    from hydractl.data.tables import one_line_errors

    where, limit = str(request), request.reading.limit
    with one_line_errors(where):
        known = rows.features or _peeked(rows, where)
        if nested := nested_columns(known, request.reading):
            known = datasets.Features({**known, **nested})
            rows = rows.map(partial(_values_at, names=tuple(nested)), features=known)
    chosen = request.choose(known)
    wanted = [*chosen.inputs, *([chosen.label] if chosen.label else [])]
    rows = rows.select_columns(wanted)
    features = datasets.Features({name: known[name] for name in wanted})
    for name in wanted:
        if isinstance(features[name], datasets.Image):
            features[name] = datasets.Image(decode=False)
            rows = rows.cast_column(name, features[name])
    notes: tuple[str, ...] = ()
    if limit is not None:
        rows, length = rows.take(limit), None if length is None else min(limit, length)
        notes = (f"{where}: takes the first {limit} samples: of data sorted by class that is no fair sample",)
    return SampleStream(request, rows, features, chosen, length=length, notes=notes)


def _values_at(row: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Returns the values of columns that lie inside others, such as `translation.en`."""
    values: dict[str, Any] = dict.fromkeys(names, row)
    for name in names:
        for part in name.split("."):
            values[name] = None if values[name] is None else values[name][part]
    return values


def _peeked(rows: datasets.IterableDataset, where: str) -> datasets.Features:
    import datasets

    columns: dict[str, list[Any]] | None = next(rows.iter(batch_size=PEEK), None)
    if columns is None:
        raise DataError(f"{where}: holds no samples")
    return datasets.Dataset.from_dict(columns).features
