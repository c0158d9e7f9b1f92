"""What ablation and searches go by, in whole numbers: equal networks compare equal on every machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.heads import Head
from hydractl.errors import OptionError
from hydractl.metrics.ood_detection import count_scores, ordered_pairs

Objective = Literal["acc", "ood", "avg"]
OBJECTIVES: tuple[Objective, ...] = ("acc", "ood", "avg")


def parse_objectives(text: str) -> list[Objective]:
    """The objectives that are named with commas between, in the order of `OBJECTIVES`.

    Raises:
        OptionError: one is unknown or named twice.
    """
    wanted = [name.strip() for name in text.split(",")]
    known = [name for name in OBJECTIVES if name in wanted]
    if len(known) != len(wanted):
        raise OptionError(f"`objective` {text}: expected acc, ood, avg or several of them with commas between")
    return known


def require_ood_data(objectives: Sequence[Objective], given: object) -> None:
    """Raises OptionError where an objective is of OOD samples and none are given: of all, `acc` alone needs none."""
    for objective in objectives:
        if objective != "acc" and given is None:
            raise OptionError(f"`objective` {objective} needs `ood_data`: name some, or choose acc, which needs none")


class Measure(NamedTuple):
    """How one network does on the search's samples.

    Attributes:
        correct: ID samples classified correctly.
        ordered: twice the pairs of an ID and an OOD sample whose MSPs stand in the right order, a tie counting one.
        ood_samples: where there are several OOD sets, they count as if each were repeated until all are of one size:
            the AUROC is the mean over sets, whatever their sizes. Of several tasks see `mean_over_tasks`.
        nll: mean negative log-likelihood of the ID labels, nats.
    """

    correct: int
    id_samples: int
    ordered: int
    ood_samples: int
    nll: float

    @property
    def accuracy(self) -> float:
        return self.correct / self.id_samples

    @property
    def auroc(self) -> float | None:
        """Of MSP, OOD positive; None where there are no OOD samples."""
        return self.ordered / (2 * self.id_samples * self.ood_samples) if self.ood_samples else None

    def score(self, objective: Objective) -> float:
        """The objective, 0..1, higher = better; any but `acc` is of OOD samples too.

        Source: [HE] D.1.2.
        """
        if objective == "acc":
            return self.accuracy
        assert self.auroc is not None
        return self.auroc if objective == "ood" else (self.accuracy + self.auroc) / 2

    def rank(self, objective: Objective) -> int:
        """A whole number in proportion to the objective on given data: what decisions compare."""
        if objective == "avg":
            return 2 * self.ood_samples * self.correct + self.ordered
        return self.correct if objective == "acc" else self.ordered

    def span(self, objective: Objective) -> int:
        """What ranks differ by where objectives differ by 1."""
        pairs = 2 * self.id_samples * self.ood_samples
        return {"acc": self.id_samples, "ood": pairs, "avg": 2 * pairs}[objective]


#: How a network does with each of some heads off, and under None with all of them on.
Measures = Mapping[Head | None, Measure]


def measure(
    correct: NDArray[np.bool_],
    id_msp: NDArray[np.float64],
    ood_msp: Sequence[NDArray[np.float64]],
    nll: NDArray[np.float64],
) -> Measure:
    """The measure of a network from what it says of each sample.

    Args:
        correct: [N] whether an ID sample's label was predicted.
        id_msp: [N] maximum softmax probability of ID samples.
        ood_msp: [N'] of the samples of each OOD set.
        nll: [N] of the ID labels.
    """
    size = lcm(*map(len, ood_msp))
    ordered = sum(_ordered(id_msp, one) * (size // len(one)) for one in ood_msp)
    return Measure(int(correct.sum()), len(id_msp), ordered, size * len(ood_msp), float(nll.mean()))


def mean_over_tasks(measures: Sequence[Measure]) -> Measure:
    """The measure whose accuracy, AUROC, objectives and loss are the means of those of several tasks.

    In whole numbers still: tasks count as if the samples of each were repeated until all tasks have equally many.

    Source: [HE] E.3.2.

    >>> mean_over_tasks([Measure(1, 2, 3, 4, 0.5), Measure(2, 3, 6, 2, 1.5)])._asdict()
    {'correct': 7, 'id_samples': 12, 'ordered': 33, 'ood_samples': 4, 'nll': 1.0}
    """
    inside = lcm(*(one.id_samples for one in measures))
    outside = lcm(*(one.ood_samples for one in measures))  # 0 where a task has none: there is no AUROC then
    times = [inside // one.id_samples for one in measures]
    pairs = [time * (outside // one.ood_samples) if outside else 0 for time, one in zip(times, measures, strict=True)]
    return Measure(
        sum(one.correct * time for one, time in zip(measures, times, strict=True)),
        inside * len(measures),
        sum(one.ordered * time for one, time in zip(measures, pairs, strict=True)),
        outside,
        fmean(one.nll for one in measures),
    )


def _ordered(id_msp: NDArray[np.float64], ood_msp: NDArray[np.float64]) -> int:
    _, id_counts, ood_counts = count_scores(-id_msp, -ood_msp)
    return ordered_pairs(id_counts, ood_counts)
