"""The order in which training meets its samples: every draw follows from the seed and a place in the stream.

The stream is one shuffled epoch after the other, without end. What a step computes depends on nothing but the seed
and the step's number, so a run can stop anywhere and go on, on any number of devices.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from hydractl.data.batches import Batch
from hydractl.data.preprocessing import Preprocessor
from hydractl.data.samples import Samples
from hydractl.errors import DataError

# Independent draws from one seed: the numbers only have to differ.
ORDER, AUGMENTATION, DROPOUT, NEW_CLASSIFIER, MEMBERS = range(5)


def derived_seed(seed: int, purpose: int, *place: int) -> int:
    """A seed for one draw, unrelated to that of any other purpose or place."""
    return int(np.random.SeedSequence([seed, purpose, *place]).generate_state(1)[0])


@lru_cache(maxsize=2)  # a batch may lie across two epochs
def epoch_order(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    """The order of one epoch, `[N]`."""
    return np.random.default_rng([seed, ORDER, epoch]).permutation(samples)


def sample_at(seed: int, place: int, samples: int) -> int:
    """The position in the data set of the sample at a place of the stream."""
    return int(epoch_order(seed, place // samples, samples)[place % samples])


@dataclass(frozen=True)
class Division:
    """How the samples of a step are dealt out to `world_size` processes in `passes` forward passes each."""

    batch: int
    world_size: int
    passes: int

    def places(self, step: int, forward: int, rank: int) -> range:
        """The places in the stream of one forward pass of one process."""
        parts = self.passes * self.world_size
        part = forward * self.world_size + rank
        start, end = (step * self.batch + self.batch * i // parts for i in (part, part + 1))
        return range(start, end)

    def places_of(self, number: int, rank: int) -> range:
        """The same by the number of the forward pass, counted from the first step on."""
        return self.places(*divmod(number, self.passes), rank)


@dataclass(frozen=True, eq=False)
class Preparation:
    """How samples become a batch: each augmented by its place in the stream, then preprocessed."""

    preprocessor: Preprocessor
    augmentation: Callable[[Any], Any] | None
    seed: int

    def batch(self, places: Sequence[int], inputs: list[Any], labels: NDArray[np.int64] | None) -> Batch | DataError:
        """The batch; a DataError is returned, since raised in a worker it would come back as a traceback."""
        try:
            tensors = self.preprocessor(self._augmented(places, inputs))
        except DataError as error:
            return error
        return Batch(tensors, None if labels is None else torch.from_numpy(labels), torch.tensor(places))

    def _augmented(self, places: Sequence[int], inputs: list[Any]) -> list[Any]:
        if self.augmentation is None:
            return inputs
        state, python_state = torch.get_rng_state(), random.getstate()
        changed = []
        for place, image in zip(places, inputs, strict=True):
            # Seeded by its place, an image looks the same whoever loads it.
            draw = derived_seed(self.seed, AUGMENTATION, place)
            # The CPU's generator alone: torch.manual_seed is many times slower, as it notes for every GPU who called.
            torch.default_generator.manual_seed(draw)
            random.seed(draw)
            changed.append(self.augmentation(image))
        torch.set_rng_state(state)
        random.setstate(python_state)
        return changed


class TrainingBatches(Protocol):
    """The training batches of one process, from any step on."""

    @property
    def division(self) -> Division:
        """How a step is dealt out."""

    @property
    def rank(self) -> int:
        """Which process this is."""

    def from_step(self, step: int, end: int) -> Iterator[Batch]:
        """The batches of the steps from `step` up to `end`, `division.passes` for each.

        Raises:
            DataError: a sample that cannot be read.
        """


@dataclass(frozen=True, eq=False)
class Stream(Dataset[Batch | DataError]):
    """The training batches of one process out of data at hand, numbered by forward pass from the first step on."""

    samples: Samples
    preparation: Preparation
    division: Division
    rank: int = 0
    workers: int = 0

    def from_step(self, step: int, end: int) -> Iterator[Batch]:
        """See `TrainingBatches`."""
        wanted = range(step * self.division.passes, end * self.division.passes)
        made: Any = map(self.__getitem__, wanted)
        if self.workers:
            made = DataLoader(self, batch_size=None, sampler=wanted, num_workers=self.workers)
        return readable(made)

    def __getitem__(self, number: int) -> Batch | DataError:
        """One batch, or what is wrong with it."""
        places = self.division.places_of(number, self.rank)
        positions = [sample_at(self.preparation.seed, place, len(self.samples)) for place in places]
        labels = self.samples.labels
        try:
            inputs = [self.samples.inputs[position] for position in positions]
        except DataError as error:
            return error
        return self.preparation.batch(places, inputs, None if labels is None else labels[positions])


def readable(made: Iterable[Batch | DataError]) -> Iterator[Batch]:
    """The batches; raises where one could not be made."""
    for batch in made:
        if isinstance(batch, DataError):
            raise batch
        yield batch
