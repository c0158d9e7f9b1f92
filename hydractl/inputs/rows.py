"""The inputs of `predict` as rows: named, read one by one or ahead; one that cannot be read keeps its place."""

from __future__ import annotations

import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from io import IncrementalNewlineDecoder, StringIO
from itertools import accumulate, chain, islice
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from hydractl.data.files import decode_text, read_bytes
from hydractl.errors import DataError
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from hydractl.data.samples import Samples
    from hydractl.model.answering import RawPreprocessor

STDIN = "-"
CHUNK = 2**16  # bytes of standard input that are taken together


class InputRow(NamedTuple):
    """One input: its name in messages, how to read it, its place in its file or data set, and columns to keep."""

    name: str
    read: Callable[[], Any]
    row: int = 0
    id: Any = None
    kept: Mapping[str, Any] = MappingProxyType({})


class ReadBatch(NamedTuple):
    """Some inputs of a part, as far as they can be read, as a network takes them.

    Attributes:
        good: the places in the part of those that were read.
        inputs: their tensors; None if there are none.
        bad: the reason for each place that cannot be read.
        error: what a worker could not raise.
    """

    good: Sequence[int]
    inputs: dict[str, Tensor] | None
    bad: dict[int, str]
    error: DataError | None = None


@dataclass(frozen=True, eq=False)
class DataRows(Sequence[InputRow]):
    """The rows of a data set, named and read when they are used: 100,000 rows take no memory of their own.

    Attributes:
        ids: the name of each row; None if there is no column for it.
        kept: the columns to keep, by name.
    """

    samples: Samples
    ids: Sequence[Any] | None
    kept: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> Any:
        places = range(len(self))[index]
        if isinstance(places, int):
            return self[places : places + 1][0]
        inputs, names = self.samples.inputs[places.start : places.stop], self.samples.names(places)
        return [
            InputRow(
                name,
                partial(inputs.__getitem__, at),
                place,
                None if self.ids is None else self.ids[place],
                kept={column: values[place] for column, values in self.kept.items()},
            )
            for at, (place, name) in enumerate(zip(places, names, strict=True))
        ]


@dataclass(frozen=True, eq=False)
class JoinedRows(Sequence[InputRow]):
    """Rows of several inputs one after the other."""

    pieces: Sequence[Sequence[InputRow]]

    @cached_property
    def ends(self) -> Sequence[int]:
        """The number of rows up to the end of each piece."""
        return [*accumulate(map(len, self.pieces))]

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, index: Any) -> Any:
        places = range(len(self))[index]
        if isinstance(places, int):
            return self[places : places + 1][0]
        rows = list[InputRow]()
        for piece, end in zip(self.pieces, self.ends, strict=True):
            start = end - len(piece)
            rows += piece[max(places.start - start, 0) : max(places.stop - start, 0)]
        return rows


class Readable:
    """The inputs that can be read; their predictions go back to the places that these have among all.

    Attributes:
        good: the places of those that were read.
        bad: the reason for each place that could not be.
    """

    def __init__(self, entries: Sequence[InputRow], watch: Watcher, *, skip_bad: bool, stand_in: Any) -> None:
        self.good, self.bad = list[int](), dict[int, str]()
        self._entries, self._watch, self._skip_bad, self._stand_in = entries, watch, skip_bad, stand_in

    def __iter__(self) -> Iterator[Any]:
        from hydractl.data.open import is_empty

        for at, entry in enumerate(self._entries):
            try:
                value = entry.read()
            except DataError as error:
                if not self._skip_bad:
                    raise
                self.bad[at] = str(error)
                self._watch.note(f"note: unreadable: {error}")
                continue
            if isinstance(value, str | tuple) and is_empty(value):
                self.bad[at] = f"row {entry.row}: empty text"
            else:
                self.good.append(at)
                yield value
        if not self.good and self._stand_in is not None:
            yield self._stand_in

    def prepared(
        self, batches: Iterable[ReadBatch], prepare: RawPreprocessor
    ) -> Iterator[tuple[dict[str, Tensor], Sequence[int]]]:
        """Yields batches that were read ahead, and the numbers of their samples among those that can be read.

        Raises:
            DataError: an input cannot be read, and is not to be skipped.
        """
        for batch in batches:
            if batch.error is not None:
                raise batch.error
            self.bad |= batch.bad
            for reason in batch.bad.values():
                self._watch.note(f"note: unreadable: {reason}")
            first = len(self.good)
            self.good += batch.good
            if batch.inputs is not None:
                yield batch.inputs, range(first, len(self.good))
        if not self.good and self._stand_in is not None:
            yield prepare([self._stand_in]), range(1)


def text_rows(texts: Iterable[str], first: int = 0) -> Iterator[InputRow]:
    """Yields a row for each text, of which the first has the number given."""
    for row, text in enumerate(texts, first):
        yield InputRow(text, partial(str, text), row)


def read_lines(file: str) -> list[str]:
    """Returns the lines of a file, blank ones too, which keep the place of those behind them."""
    text = decode_text(_content(file), file, "one text a line")
    # Lines as `datasets` and Python's files have them: `splitlines` would cut a text at U+2028 or a form feed too.
    lines = [line.rstrip("\n") for line in StringIO(text, newline=None)]
    if not any(map(str.strip, lines)):
        raise DataError(f"{file}: no text in it: write one text a line")
    return lines


def lines_as_they_come() -> Iterator[list[str]]:
    """Yields the lines of standard input that come together."""
    decoder = IncrementalNewlineDecoder(getincrementaldecoder("utf-8-sig")(), translate=True)
    rest, is_text = "", False
    while True:
        came = sys.stdin.buffer.read1(CHUNK)  # type: ignore[union-attr]
        try:
            *lines, rest = (rest + decoder.decode(came, final=not came)).split("\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{STDIN}: cannot read as text ({error}): write one text a line, in UTF-8") from error
        lines += [rest] if rest and not came else []
        is_text = is_text or any(map(str.strip, lines))
        if lines:
            yield lines
        if not came:
            break
    if not is_text:
        raise DataError(f"{STDIN}: no text in it: write one text a line")


def read_image_file(file: str) -> Image:
    """Returns the image of a file or of standard input; raises DataError if it cannot be read."""
    from hydractl.data.images import read_image

    return read_image(_content(file), file)


def _content(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == STDIN else read_bytes(Path(file), "name a file, or - for standard input")


class PartRows(NamedTuple):
    """The inputs of a batch among all, and the first of its part."""

    first: int
    end: int
    part: int


@dataclass(frozen=True, eq=False)
class _Batches:
    """The batches as a data set, which workers read by number."""

    entries: Sequence[InputRow]
    plan: Sequence[PartRows]
    prepare: RawPreprocessor
    skip_bad: bool

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, number: int) -> ReadBatch:
        span, good, bad = self.plan[number], list[int](), dict[int, str]()

        def read() -> Iterator[Any]:
            for place, entry in enumerate(self.entries[span.first : span.end], span.first - span.part):
                try:
                    value = entry.read()
                except DataError as error:
                    if not self.skip_bad:
                        raise
                    bad[place] = str(error)
                    continue
                good.append(place)
                yield value

        values = read()
        try:
            first = next(values, None)
            # One by one: decoded, a batch of photographs takes gigabytes.
            return ReadBatch(good, None if first is None else self.prepare(chain([first], values)), bad)
        except DataError as error:
            return ReadBatch([], None, {}, error)


@dataclass(eq=False)
class ReadAhead:
    """Reads all inputs in order, part after part; a batch lies in one part.

    Attributes:
        part: inputs of a part.
        workers: processes that read ahead, each two batches; with 0 the reader itself reads.
    """

    entries: Sequence[InputRow]
    prepare: RawPreprocessor
    batch_size: int
    part: int
    workers: int
    skip_bad: bool
    _made: Iterator[ReadBatch] | None = field(default=None, init=False)

    def batches(self, first: int) -> Iterator[ReadBatch]:
        """Returns the batches of the part that begins at an input; parts follow one another from the first call on."""
        self._made = self._made or self._start(first)
        return islice(self._made, ceil(len(range(len(self.entries))[first : first + self.part]) / self.batch_size))

    def _start(self, first: int) -> Iterator[ReadBatch]:
        from hydractl.data.batching import made_by_workers

        count, size = len(self.entries), self.batch_size
        parts = ((start, min(start + self.part, count)) for start in range(first, count, self.part))
        plan = [PartRows(at, min(at + size, end), start) for start, end in parts for at in range(start, end, size)]
        made: Any = _Batches(self.entries, plan, self.prepare, self.skip_bad)
        workers = min(self.workers, len(plan))
        return made_by_workers(made, workers) if workers else map(made.__getitem__, range(len(plan)))
