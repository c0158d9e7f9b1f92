"""The order in which training meets its samples: every draw follows from the seed and a place in that order.

The order is one shuffled epoch after the other, without end. What a step computes depends on nothing but the seed
and the step's number, so a run can stop anywhere and go on, on any number of devices.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hydractl.training.request import Seeds

# Independent draws from one seed: the numbers only have to differ.
ORDER, AUGMENTATION, DROPOUT, NEW_CLASSIFIER, MEMBERS, OUTLIERS = range(6)


def outlier_seeds(seeds: Seeds) -> Seeds:
    """Returns the seeds of the samples beside the labelled ones, unrelated to theirs."""
    return replace(
        seeds, order_seed=derived_seed(seeds.order, OUTLIERS), noise_seed=derived_seed(seeds.noise, OUTLIERS)
    )


def derived_seed(seed: int, purpose: int, *place: int) -> int:
    """Returns a seed for one draw, unrelated to that of any other purpose or place."""
    return int(np.random.SeedSequence([seed, purpose, *place]).generate_state(1)[0])


@dataclass(frozen=True, eq=False)
class Grouping:
    """Puts samples of similar length into one step, so that less of a step is padding."""

    lengths: NDArray[np.int64]  # `[N]`, of every sample, in any unit
    batch: int  # samples of a step
    window: int  # steps whose samples are sorted together; the order beyond a window is random

    def apply(self, order: NDArray[np.int64], draws: np.random.Generator) -> NDArray[np.int64]:
        """Returns the order with similar lengths side by side within each window; its steps follow at random."""
        parts: list[NDArray[np.int64]] = []
        for start in range(0, len(order), self.batch * self.window):
            part = order[start : start + self.batch * self.window]
            part = part[self.lengths[part].argsort(kind="stable")]
            full = len(part) // self.batch * self.batch
            parts += [draws.permutation(part[:full].reshape(-1, self.batch)).ravel(), part[full:]]
        return np.concatenate(parts)


@lru_cache(maxsize=2)  # a batch may lie across two epochs
def epoch_order(seed: int, epoch: int, samples: int, grouping: Grouping | None = None) -> NDArray[np.int64]:
    """Returns the order of one epoch, `[N]`."""
    draws = np.random.default_rng([seed, ORDER, epoch])
    order = draws.permutation(samples)
    return grouping.apply(order, draws) if grouping else order


def sample_at(seed: int, place: int, samples: int, grouping: Grouping | None = None) -> int:
    """Returns the position in the data set of the sample at a place of the order."""
    return int(epoch_order(seed, place // samples, samples, grouping)[place % samples])


@dataclass(frozen=True)
class SplitOrder:
    """Deals the samples of a step out to `world_size` processes in `passes` forward passes each."""

    batch: int
    world_size: int
    passes: int

    def places_of(self, number: int, rank: int) -> range:
        """Returns the places in the order that a forward pass of one process takes.

        Args:
            number: of the forward pass, counted from the first step on.
        """
        step, forward = divmod(number, self.passes)
        parts = self.passes * self.world_size
        part = forward * self.world_size + rank
        start, end = (step * self.batch + self.batch * i // parts for i in (part, part + 1))
        return range(start, end)
