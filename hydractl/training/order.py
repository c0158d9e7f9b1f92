"""The order in which training meets its samples: every draw follows from the seed and a place in that order.

The order is one shuffled epoch after the other, without end. What a step computes depends on nothing but the seed
and the step's number, so a run can stop anywhere and go on, on any number of devices. That holds of a stream too,
data that is read as it comes and kept nowhere: but there every process reads the whole source, and a run that
resumes reads its way to where it was.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from hydractl.data.batches import Batch
from hydractl.data.preprocessing import Preprocessor
from hydractl.data.samples import Samples
from hydractl.data.workers import made_by_workers
from hydractl.errors import DataError

BLOCK = 256  # samples in memory at a time, undecoded, beside those of the batch
# Independent draws from one seed: the numbers only have to differ.
ORDER, AUGMENTATION, DROPOUT, NEW_CLASSIFIER, MEMBERS, OUTLIERS = range(6)


@dataclass(frozen=True)
class Seeds:
    """What a run's draws follow from; each may be varied alone ([HE] B.5).

    Attributes:
        run: a new classifier, members' weights and the samples that each counts.
        order: the order of the samples.
        noise: dropout, and augmentation.
    """

    run: int
    order: int
    noise: int

    @classmethod
    def of(cls, run: int, order: int | None = None, noise: int | None = None) -> Seeds:
        """All of them the run's unless given."""
        return cls(run, run if order is None else order, run if noise is None else noise)

    def of_outliers(self) -> Seeds:
        """Those of the samples beside the labelled ones, unrelated to theirs."""
        return Seeds(self.run, derived_seed(self.order, OUTLIERS), derived_seed(self.noise, OUTLIERS))


def derived_seed(seed: int, purpose: int, *place: int) -> int:
    """A seed for one draw, unrelated to that of any other purpose or place."""
    return int(np.random.SeedSequence([seed, purpose, *place]).generate_state(1)[0])


@dataclass(frozen=True, eq=False)
class Grouping:
    """Which samples share a step: those of like length, so that less of a step is padding.

    Attributes:
        lengths: of every sample, `[N]`, in any unit.
        batch: samples of a step.
        window: steps whose samples are sorted together; order beyond a window is left to chance.
    """

    lengths: NDArray[np.int64]
    batch: int
    window: int

    def apply(self, order: NDArray[np.int64], draws: np.random.Generator) -> NDArray[np.int64]:
        """The order with like beside like within each window, whose steps follow one another at random."""
        parts: list[NDArray[np.int64]] = []
        for start in range(0, len(order), self.batch * self.window):
            part = order[start : start + self.batch * self.window]
            part = part[self.lengths[part].argsort(kind="stable")]
            whole = len(part) // self.batch * self.batch
            parts += [draws.permutation(part[:whole].reshape(-1, self.batch)).ravel(), part[whole:]]
        return np.concatenate(parts)


@lru_cache(maxsize=2)  # a batch may lie across two epochs
def epoch_order(seed: int, epoch: int, samples: int, grouping: Grouping | None = None) -> NDArray[np.int64]:
    """The order of one epoch, `[N]`."""
    draws = np.random.default_rng([seed, ORDER, epoch])
    order = draws.permutation(samples)
    return grouping.apply(order, draws) if grouping else order


def sample_at(seed: int, place: int, samples: int, grouping: Grouping | None = None) -> int:
    """The position in the data set of the sample at a place of the order."""
    return int(epoch_order(seed, place // samples, samples, grouping)[place % samples])


@dataclass(frozen=True)
class Division:
    """How the samples of a step are dealt out to `world_size` processes in `passes` forward passes each."""

    batch: int
    world_size: int
    passes: int

    def places(self, step: int, forward: int, rank: int) -> range:
        """The places in the order that one forward pass of one process takes."""
        parts = self.passes * self.world_size
        part = forward * self.world_size + rank
        start, end = (step * self.batch + self.batch * i // parts for i in (part, part + 1))
        return range(start, end)

    def places_of(self, number: int, rank: int) -> range:
        """The same by the number of the forward pass, counted from the first step on."""
        return self.places(*divmod(number, self.passes), rank)


@dataclass(frozen=True, eq=False)
class Preparation:
    """How samples become a batch: put in an order, each augmented by its place there, then preprocessed."""

    preprocessor: Preprocessor
    augmentation: Callable[[Any], Any] | None
    seeds: Seeds

    def batch(
        self, places: Sequence[int], inputs: Iterable[Any], labels: NDArray[np.int64] | None
    ) -> Batch | DataError:
        """The batch; a DataError is returned, since raised in a worker it would come back as a traceback."""
        try:
            tensors = self.preprocessor(self._augmented(places, inputs))
        except DataError as error:
            return error
        return Batch(tensors, None if labels is None else torch.from_numpy(labels), torch.tensor(places))

    def _augmented(self, places: Sequence[int], inputs: Iterable[Any]) -> Iterable[Any]:
        if self.augmentation is None:
            return inputs
        state, python_state = torch.get_rng_state(), random.getstate()
        changed = []
        for place, image in zip(places, inputs, strict=True):
            # Seeded by its place, an image looks the same whoever loads it.
            draw = derived_seed(self.seeds.noise, AUGMENTATION, place)
            # The CPU's generator alone: torch.manual_seed takes many times longer, to note for every GPU who called it.
            torch.default_generator.manual_seed(draw)
            random.seed(draw)
            changed.append(self.augmentation(image))
        torch.set_rng_state(state)
        random.setstate(python_state)
        return changed


class TrainingBatches(Protocol):
    """The training batches of one process, from any step on."""

    @property
    def passes(self) -> int:
        """Forward passes of one process in each step."""

    def from_step(self, step: int, end: int) -> Iterator[Batch]:
        """The batches of the steps from `step` up to `end`, `passes` for each.

        Raises:
            DataError: a sample that cannot be read.
        """


@dataclass(frozen=True, eq=False)
class ShuffledSamples(Dataset[Batch | DataError]):
    """The training batches of one process out of samples at hand, numbered by forward pass from the first step on."""

    samples: Samples
    preparation: Preparation
    division: Division
    rank: int = 0
    workers: int = 0
    grouping: Grouping | None = None

    @property
    def passes(self) -> int:
        """See `TrainingBatches`."""
        return self.division.passes

    def from_step(self, step: int, end: int) -> Iterator[Batch]:
        """See `TrainingBatches`."""
        wanted = range(step * self.division.passes, end * self.division.passes)
        made: Any = map(self.__getitem__, wanted)
        if self.workers:
            made = made_by_workers(self, self.workers, wanted)
        return readable(made)

    def __getitem__(self, number: int) -> Batch | DataError:
        """One batch, or what is wrong with it."""
        places = self.division.places_of(number, self.rank)
        seed, count = self.preparation.seeds.order, len(self.samples)
        positions = [sample_at(seed, place, count, self.grouping) for place in places]
        labels = self.samples.labels
        inputs = (self.samples.inputs[position] for position in positions)
        return self.preparation.batch(places, inputs, None if labels is None else labels[positions])


class Blocks(Protocol):
    """A data set in blocks: a `SampleStream`, or pairs of two."""

    @property
    def length(self) -> int | None:
        """How many samples there are, where that is known."""

    def shuffled(self, seed: int, epoch: int = 0) -> Blocks:
        """The same samples in another order."""

    def blocks(self, size: int, start: int = 0) -> Iterator[Samples]:
        """Blocks of `size` samples in order, from sample `start` on."""


@dataclass(frozen=True, eq=False)
class ShuffledStream(IterableDataset[Batch | DataError]):
    """The training batches of one process out of a stream."""

    source: Blocks
    preparation: Preparation
    division: Division
    rank: int = 0
    workers: int = 0
    wanted: range = range(0)

    @property
    def passes(self) -> int:
        """See `TrainingBatches`."""
        return self.division.passes

    def from_step(self, step: int, end: int) -> Iterator[Batch]:
        """See `TrainingBatches`."""
        wanted = range(step * self.division.passes, end * self.division.passes)
        mine = ShuffledStream(self.source, self.preparation, self.division, self.rank, 0, wanted)
        return readable(made_by_workers(mine, self.workers) if self.workers else mine)

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
        inputs: list[Iterator[Any]] = []
        labels = []
        for start, block in held:
            own = range(max(places.start, start) - start, min(places.stop, start + len(block)) - start)
            inputs.append(map(block.inputs.__getitem__, own))
            if block.labels is not None:
                labels.append(block.labels[own.start : own.stop])
        return self.preparation.batch(places, chain.from_iterable(inputs), np.concatenate(labels) if labels else None)

    def _blocks(self, place: int) -> Iterator[tuple[int, Samples]]:
        """Blocks without end, each with the place of its first sample; the first holds `place` or comes before it."""
        length = self.source.length
        # Where nobody knows how long an epoch is, only reading tells which one a place lies in.
        epoch, start = divmod(place, length) if length else (0, 0)
        place = place if length else 0
        while True:
            seed = derived_seed(self.preparation.seeds.order, ORDER)
            for block in self.source.shuffled(seed, epoch).blocks(BLOCK, start):
                yield place, block
                place += len(block)
            epoch, start = epoch + 1, 0


def readable(made: Iterable[Batch | DataError]) -> Iterator[Batch]:
    """The batches; raises where one could not be made."""
    for batch in made:
        if isinstance(batch, DataError):
            raise batch
        yield batch
