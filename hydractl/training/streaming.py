"""Training on data that is read as it comes and kept nowhere, in an order that follows from the seed.

The order is that of `SampleStream.shuffled`, one epoch after the other. What a step computes depends on the seed and
the step's number here too; but every process reads the whole source, and a run that resumes reads its way to where
it was, to take only what is its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from hydractl.data.batches import Batch
from hydractl.data.samples import Samples
from hydractl.errors import DataError
from hydractl.training.stream import ORDER, Division, Preparation, derived_seed, readable

BLOCK = 256  # samples in memory at a time, undecoded, beside those of the batch


class Source(Protocol):
    """A data set in blocks: a `SampleStream`, or pairs of two."""

    @property
    def length(self) -> int | None:
        """How many samples there are, where that is known."""

    def shuffled(self, seed: int, epoch: int = 0) -> Source:
        """The same samples in another order."""

    def blocks(self, size: int, start: int = 0) -> Iterator[Samples]:
        """So many samples after the other, from sample `start` on."""


@dataclass(frozen=True, eq=False)
class StreamedTraining(IterableDataset[Batch | DataError]):
    """The training batches of one process out of a stream."""

    source: Source
    preparation: Preparation
    division: Division
    rank: int = 0
    workers: int = 0
    wanted: range = range(0)

    def from_step(self, step: int, end: int) -> Iterator[Batch]:
        """See `TrainingBatches`."""
        wanted = range(step * self.division.passes, end * self.division.passes)
        mine = StreamedTraining(self.source, self.preparation, self.division, self.rank, 0, wanted)
        return readable(DataLoader(mine, batch_size=None, num_workers=self.workers) if self.workers else mine)

    def __iter__(self) -> Iterator[Batch | DataError]:
        """The wanted batches in order, in a worker process every n-th of them; ends with the first that fails."""
        worker = get_worker_info()
        first, every = (worker.id, worker.num_workers) if worker else (0, 1)
        try:
            yield from self._made(self.wanted[first::every])
        except DataError as error:
            yield error

    def _made(self, numbers: range) -> Iterator[Batch | DataError]:
        if not numbers:
            return
        coming = self._blocks(self.division.places_of(numbers[0], self.rank).start)
        held: deque[tuple[int, Samples]] = deque()
        for number in numbers:
            places = self.division.places_of(number, self.rank)
            while not held or held[-1][0] + len(held[-1][1]) < places.stop:
                held.append(next(coming))
            while held[0][0] + len(held[0][1]) <= places.start:
                held.popleft()
            yield self._batch(places, held)

    def _batch(self, places: range, held: deque[tuple[int, Samples]]) -> Batch | DataError:
        inputs, labels = [], []
        for start, block in held:
            own = range(max(places.start, start) - start, min(places.stop, start + len(block)) - start)
            inputs += [block.inputs[at] for at in own]
            if block.labels is not None:
                labels.append(block.labels[own.start : own.stop])
        return self.preparation.batch(places, inputs, np.concatenate(labels) if labels else None)

    def _blocks(self, place: int) -> Iterator[tuple[int, Samples]]:
        """Blocks without end, each with the place of its first sample, from `place` on or from before it."""
        length = self.source.length
        # Where nobody knows how long an epoch is, it takes reading to find out which one a place lies in.
        epoch, start = divmod(place, length) if length else (0, 0)
        place = place if length else 0
        while True:
            seed = derived_seed(self.preparation.seed, ORDER)
            for block in self.source.shuffled(seed, epoch).blocks(BLOCK, start):
                yield place, block
                place += len(block)
            epoch, start = epoch + 1, 0
