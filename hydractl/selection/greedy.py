"""Greedy selection of members by the quality of their mean prediction.

Source: Caruana et al. 2004, without replacement and from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hydractl.errors import DataError, OptionError
from hydractl.metrics.checks import IntArray
from hydractl.metrics.ood_detection import count_scores, ordered_pairs
from hydractl.metrics.probabilities import (
    label_log_probabilities,
    mean_over_members,
    member_probabilities,
    sample_chunks,
    scaled_logits,
)
from hydractl.selection.objectives import Objective

#: Multiply-adds of the network that these candidates, by number, are fused to.
Cost = Callable[[Sequence[int]], int]


@dataclass(frozen=True, eq=False)
class Answers:
    """What K candidates say of the selection samples.

    Attributes:
        inside: `[K,N,C]` logits of the ID samples.
        labels: `[N]` of these.
        outside: `[K,N',C]` logits of the samples of each OOD set.
        temperature: of all candidates, as they are the same network's.
    """

    inside: NDArray[np.floating]
    labels: IntArray
    outside: Mapping[str, NDArray[np.floating]]
    temperature: float = 1.0


@dataclass(frozen=True)
class Quality:
    """How well the mean of some members' probabilities does.

    Accuracy and AUROC are exact fractions, so that equal members tie whatever the machine.

    Attributes:
        accuracy: of the ID samples, 0..1.
        auroc: of MSP, OOD positive, the mean over OOD sets; None where there is none.
        nll: mean negative log-likelihood of the ID labels, nats.
    """

    accuracy: Fraction
    auroc: Fraction | None
    nll: float

    def score(self, objective: Objective) -> Fraction | float:
        """The objective, higher = better."""
        if objective == "nll":
            return -self.nll
        if objective == "acc":
            return self.accuracy
        assert self.auroc is not None
        return self.auroc if objective == "ood" else (self.accuracy + self.auroc) / 2


@dataclass(frozen=True)
class Chosen:
    """A candidate, and how the members chosen so far do with it."""

    candidate: int
    quality: Quality
    multiply_adds: int


@dataclass(frozen=True)
class Selection:
    """Candidates in the order in which they were chosen; the first `members` of them are the Hydra's."""

    curve: tuple[Chosen, ...]
    members: int

    @property
    def chosen(self) -> tuple[int, ...]:
        """The candidates of the members."""
        return tuple(step.candidate for step in self.curve[: self.members])

    @property
    def quality(self) -> Quality:
        """Of the members together."""
        return self.curve[self.members - 1].quality

    def renumbered(self, numbers: Sequence[int]) -> Selection:
        """The selection with candidates called by other numbers."""
        return replace(self, curve=tuple(replace(step, candidate=numbers[step.candidate]) for step in self.curve))


def select(
    answers: Answers,
    objective: Objective,
    members: tuple[int, int],
    cost: Cost,
    least_accuracy: Fraction | None = None,
    within: Callable[[Sequence[int]], bool] = lambda chosen: True,
) -> Selection:
    """The members that do best together: again and again the candidate that makes the mean of probabilities best.

    Of equally good ones the cheapest joins, of these the first. Where the least accuracy is out of reach the most
    accurate joins, so that others may come within it.

    Args:
        members: how many at least and at most; between them the number with the best objective, of equals the least.
        cost: asked wherever candidates tie.
        least_accuracy: of the members together.
        within: whether members together keep to what they may cost; they stop joining where none would.

    Raises:
        OptionError: fewer candidates than members, no OOD samples for an objective that is measured on them, or a
            cost that so many members cannot keep to.
        DataError: a logit is not finite, or a set is empty.
    """
    require_enough(members, len(answers.inside))
    require_measurable(objective, bool(answers.outside))
    low, high = members
    count = len(answers.inside)
    curve: list[Chosen] = []
    while len(curve) < high:
        before = tuple(step.candidate for step in curve)
        left = [k for k in range(count) if k not in before and within((*before, k))]
        if not left:
            break
        trials = {k: quality(answers, (*before, k)) for k in left}
        scores = {k: standing(trial, objective, least_accuracy) for k, trial in trials.items()}
        best = max(scores.values())
        tied = [k for k in trials if scores[k] == best]
        winner = min(tied, key=lambda k: cost((*before, k))) if len(tied) > 1 else tied[0]
        curve.append(Chosen(winner, trials[winner], cost((*before, winner))))
    if len(curve) < low:
        raise OptionError(
            f"`members` {low}: no more than {len(curve)} keep to the cost allowed: allow more, or drop more heads"
        )
    ends = range(low, len(curve) + 1)
    return Selection(tuple(curve), max(ends, key=lambda n: standing(curve[n - 1].quality, objective, least_accuracy)))


def require_enough(members: tuple[int, int], candidates: int) -> None:
    """Raises OptionError where so many members cannot be chosen among so many candidates."""
    low, high = members
    if not 1 <= low <= high <= candidates:
        wanted = str(low) if low == high else f"{low}-{high}"
        raise OptionError(
            f"`members` {wanted}: candidates to choose from are {candidates}: give more `budgets`, `draws` or `random` "
            "ones"
        )


def require_measurable(objective: Objective, outside: bool) -> None:
    """Raises OptionError for an objective that is measured on OOD samples where there are none."""
    if objective in ("ood", "avg") and not outside:
        raise OptionError(f"`objective` {objective} is measured on OOD samples: give `ood_data`, or choose nll or acc")


def standing(quality: Quality, objective: Objective, least: Fraction | None) -> tuple[bool, Fraction | float]:
    """What choices maximise: first whether the accuracy suffices, then the objective, or the accuracy if not."""
    enough = least is None or quality.accuracy >= least
    return enough, quality.score(objective) if enough else quality.accuracy


def quality(answers: Answers, chosen: Sequence[int]) -> Quality:
    """How well the mean of the chosen candidates' probabilities does.

    Raises:
        DataError: a logit is not finite, or a set is empty.
    """
    inside = answers.inside[list(chosen)]
    if not inside.shape[1]:
        raise DataError("the selection data holds no ID samples")
    msp, correct, nll = [], 0, 0.0
    for samples in sample_chunks(inside):
        scaled, labels = scaled_logits(inside, samples, answers.temperature), answers.labels[samples]
        mean = mean_over_members(member_probabilities(scaled))
        msp.append(mean.max(-1))
        correct += int((mean.argmax(-1) == labels).sum())
        nll -= float(label_log_probabilities(scaled, labels).sum())
    count = inside.shape[1]
    aurocs = [_auroc(np.concatenate(msp), _msp(logits[list(chosen)], answers)) for logits in answers.outside.values()]
    mean_auroc = sum(aurocs, Fraction(0)) / len(aurocs) if aurocs else None
    return Quality(Fraction(correct, count), mean_auroc, nll / count)


def _msp(logits: NDArray[np.floating], answers: Answers) -> NDArray[np.float64]:
    parts = [
        mean_over_members(member_probabilities(scaled_logits(logits, samples, answers.temperature))).max(-1)
        for samples in sample_chunks(logits)
    ]
    return np.concatenate(parts)


def _auroc(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> Fraction:
    _, id_counts, ood_counts = count_scores(-inside, -outside)
    return Fraction(ordered_pairs(id_counts, ood_counts), 2 * len(inside) * len(outside))
