"""A data set that is read as it comes: as `Samples`, one block of them in memory at a time, whatever its size.

How to use it: `hydractl.data.open.open_stream` finds the source and its columns; `blocks` yields one `Samples` after
the other, each of which works wherever samples do (`match_labels`, `content_hashes`, `make_batches`). What must
happen to every block, whoever reads it, is said once with `through`:

    stream = open_stream(data, "image").through(lambda block: match_labels(block, model.labels))
    for batch in StreamedBatches(stream, preprocessor, batch_size=64):  # evaluation: in the source's order
        ...
    for block in stream.shuffled(seed, epoch).blocks(1024, start):  # training: one epoch, from sample `start` on
        ...

Each of these loops reads the source anew, from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import datasets
import numpy as np

from hydractl.data.batches import Batch, make_batches
from hydractl.data.columns import ChosenColumns, Columns, choose_columns, nested_columns, value_at
from hydractl.data.like import Modality
from hydractl.data.preprocessing import Preprocessor
from hydractl.data.rows import read_samples
from hydractl.data.samples import Samples
from hydractl.data.spec import DataSpec, DataValues
from hydractl.data.tables import one_line_errors
from hydractl.errors import DataError

Change = Callable[[Samples], Samples]

PEEK = 1000  # rows by which the columns of a file without types, as CSV is, are understood
SHUFFLE_BUFFER = 10_000
TEXT_BATCHES = 64  # batches in a block of texts, which are sorted by length within it


@dataclass(frozen=True, eq=False)
class SampleStream:
    """Samples of one data set in its order; `length` is None where their number shows only at the end.

    `label_names` are those the source declares; None also where labels are words, which come block by block.
    """

    asked: DataSpec | DataValues
    modality: Modality
    rows: datasets.IterableDataset
    features: datasets.Features
    chosen_columns: ChosenColumns
    length: int | None
    skip_bad: bool = False
    notes: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def name(self) -> str:
        """What messages and reports call it."""
        return self.asked.name

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The classes that bare numbers in the label column stand for."""
        feature = self.features.get(self.chosen_columns.label)
        return tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else None

    def through(self, change: Change) -> SampleStream:
        """The same stream, every block of which passes through `change`: to match labels, to check, to remember."""
        return replace(self, changes=(*self.changes, change))

    def shuffled(self, seed: int, epoch: int = 0, buffer: int = SHUFFLE_BUFFER) -> SampleStream:
        """The same samples in another order, the same one for the same seed and epoch.

        Files are taken in random order and samples drawn from a buffer of so many: data sorted by class within one
        file stay sorted but for the buffer.
        """
        # The epoch goes into the seed: `set_epoch` would be lost on the rows that `skip` makes of these.
        drawn = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
        return replace(self, rows=self.rows.shuffle(seed=drawn, buffer_size=buffer))

    def blocks(self, size: int, start: int = 0) -> Iterator[Samples]:
        """So many samples after the other; the last block may have fewer, as any from which bad ones are left out.

        Args:
            start: how many samples to pass over.

        Raises:
            DataError: there are no samples, one cannot be read, or a change refuses them.
        """
        read, kept = start, 0
        for table in self._tables(size, start):
            samples = read_samples(table, self.asked, self.modality, self.chosen_columns, self.skip_bad, read)
            read += len(table)
            for change in self.changes:
                samples = change(samples)
            kept += len(samples)
            if len(samples):
                yield samples
        if not kept and read > start:
            raise DataError(f"{self.asked}: not one of {read - start} samples can be read")
        if not read:
            raise DataError(f"{self.asked}: holds no samples")

    def _tables(self, size: int, start: int) -> Iterator[datasets.Dataset]:
        rows = (self.rows.skip(start) if start else self.rows).iter(batch_size=size)
        while True:
            with one_line_errors(str(self.asked)):
                columns = next(rows, None)
                if columns is None:
                    return
                table = datasets.Dataset.from_dict(columns, features=self.features)
            yield table


def stream_rows(
    rows: datasets.IterableDataset,
    length: int | None,
    asked: DataSpec | DataValues,
    modality: Modality,
    columns: Columns,
    limit: int | None,
    skip_bad: bool,
) -> SampleStream:
    """The samples in rows that come one after the other; see `hydractl.data.open.open_stream`.

    Args:
        length: how many rows there are, where that is known.
        asked: what the user asked for; says what to call it, and where files are that its rows name.

    Raises:
        DataError: no rows, or no such column.
    """
    where = str(asked)
    with one_line_errors(where):
        known = rows.features or _peeked(rows, where)
        if nested := nested_columns(known, columns):
            known = datasets.Features({**known, **nested})
            rows = rows.map(partial(_values_at, names=tuple(nested)), features=known)
        empty = datasets.Dataset.from_dict({name: [] for name in known}, features=known)
    chosen = choose_columns(empty, modality, columns, where)
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
    return SampleStream(asked, modality, rows, features, chosen, length, skip_bad, notes)


def _values_at(row: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value_at(row, name) for name in names}


def _peeked(rows: datasets.IterableDataset, where: str) -> datasets.Features:
    columns: dict[str, list[Any]] | None = next(rows.iter(batch_size=PEEK), None)
    if columns is None:
        raise DataError(f"{where}: holds no samples")
    return datasets.Dataset.from_dict(columns).features


class StreamedBatches:
    """The batches of a stream: of images the same as `make_batches` gives of the whole data set, if none is left out.

    Texts are sorted by length within a block of TEXT_BATCHES batches, so padding differs from that of the whole.
    Positions count the samples that were not left out. Each loop over it reads the stream anew.

    Attributes:
        truncated: texts that lost their end in the loop now running, or the last one.
    """

    def __init__(self, stream: SampleStream, preprocessor: Preprocessor, batch_size: int, workers: int = 0) -> None:
        """
        Args:
            batch_size: samples in each batch; the last may have fewer.
            workers: threads that decode and preprocess images; so many batches are in memory at once.
        """
        self._stream, self._preprocessor, self._batch_size = stream, preprocessor, batch_size
        self._workers = max(workers, 1)
        self.truncated = 0

    def __iter__(self) -> Iterator[Batch]:
        """Each batch in order.

        Raises:
            DataError: see `SampleStream.blocks`.
        """
        self.truncated = before = 0
        many = TEXT_BATCHES if self._stream.modality == "text" else self._workers
        with ThreadPoolExecutor(self._workers) as pool:
            for block in self._stream.blocks(self._batch_size * many):
                batches = make_batches(block, self._preprocessor, self._batch_size)
                self.truncated += batches.truncated
                for made in pool.map(batches.__getitem__, range(len(batches))):
                    if isinstance(made, DataError):
                        raise made
                    yield replace(made, positions=made.positions + before)
                before += len(block)
