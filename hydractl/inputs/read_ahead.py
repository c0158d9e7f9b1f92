"""Images of `predict`, read and prepared while the network computes: by worker processes, a few batches ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from hydractl.errors import DataError
from hydractl.inputs.rows import InputRow, ReadBatch

if TYPE_CHECKING:
    from hydractl.model.answering import RawPreprocessor


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
