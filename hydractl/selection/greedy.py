"""Greedy selection of members by the quality of their mean prediction.

Source: Caruana et al. 2004, without replacement, starting with no member.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hydractl.circuit.objective import Measure, detection
from hydractl.errors import DataError, OptionError
from hydractl.metrics.checks import IntArray
from hydractl.metrics.probabilities import (
    label_log_probabilities,
    mean_over_members,
    member_probabilities,
    sample_chunks,
    scaled_logits,
)
from hydractl.selection.candidates import SelectionObjective, require_measurable

#: Multiply-adds of the network that these candidates, by number, are fused to.
Cost = Callable[[Sequence[int]], int]


@dataclass(frozen=True, eq=False)
class CandidateLogits:
    """The logits of K candidates on the selection samples."""

    inside: NDArray[np.floating]  # `[K,N,C]` of the ID samples
    labels: IntArray  # `[N]` of these
    outside: Sequence[NDArray[np.floating]] = ()  # `[K,N',C]` of the samples of each OOD set
    temperature: float = 1.0  # of all candidates, as they are the same network's


@dataclass(frozen=True)
class Goal:
    """The objective of a choice, and the accuracy that members together may not fall below (None: any)."""

    objective: SelectionObjective
    least_accuracy: Fraction | None = None

    def standing(self, quality: Measure) -> tuple[bool, float]:
        """Returns the value to maximise: whether accuracy suffices, then the objective, or the accuracy if not."""
        accuracy = Fraction(quality.correct, quality.id_samples)
        enough = self.least_accuracy is None or accuracy >= self.least_accuracy
        return enough, quality.standing(self.objective if enough else "acc")


@dataclass(frozen=True)
class CurvePoint:
    """A candidate, and the quality of all members chosen so far with it."""

    candidate: int
    quality: Measure
    multiply_adds: int


@dataclass(frozen=True)
class MemberCurve:
    """Candidates in the order in which they were chosen; the first `members` of them are the Hydra's."""

    points: tuple[CurvePoint, ...]
    members: int

    @property
    def chosen(self) -> tuple[int, ...]:
        """The candidates of the members."""
        return tuple(point.candidate for point in self.points[: self.members])

    @property
    def quality(self) -> Measure:
        """The quality of the members together."""
        return self.points[self.members - 1].quality


def select(
    logits: CandidateLogits,
    goal: Goal,
    members: tuple[int, int],
    cost: Cost,
    *,
    among: Sequence[int] | None = None,
    within: Callable[[Sequence[int]], bool] = lambda chosen: True,
) -> MemberCurve:
    """Returns the members that do best together, found by adding the best candidate again and again.

    Among equally good candidates the cheapest joins, then the first. If the least accuracy is out of reach the most
    accurate joins, so that others may come within it.

    Args:
        members: how many at least and at most; between them the number with the best objective, then the least.
        cost: called wherever candidates tie.
        among: the candidates to choose from, by number; None for all.
        within: whether members together keep within the limits on cost; members stop joining when no candidate would.

    Raises:
        OptionError: fewer candidates than members, no OOD samples for an objective that is measured on them, or a
            cost that so many members cannot keep to.
        DataError: a logit is not finite, or a set is empty.
    """
    among = range(len(logits.inside)) if among is None else among
    require_enough(members, len(among))
    require_measurable(goal.objective, bool(logits.outside))
    low, high = members
    points: list[CurvePoint] = []
    while len(points) < high:
        before = tuple(point.candidate for point in points)
        trials = {k: quality(logits, (*before, k)) for k in among if k not in before and within((*before, k))}
        if not trials:
            break
        best = max(map(goal.standing, trials.values()))
        tied = [k for k, trial in trials.items() if goal.standing(trial) == best]
        winner = min(tied, key=lambda k: cost((*before, k))) if len(tied) > 1 else tied[0]
        points.append(CurvePoint(winner, trials[winner], cost((*before, winner))))
    if len(points) < low:
        raise OptionError(
            f"`members` {low}: no more than {len(points)} keep to the cost allowed: allow more, or drop more heads"
        )
    counts = range(low, len(points) + 1)
    return MemberCurve(tuple(points), max(counts, key=lambda n: goal.standing(points[n - 1].quality)))


def require_enough(members: tuple[int, int], candidates: int) -> None:
    """Raises OptionError if so many members cannot be chosen among so many candidates."""
    low, high = members
    if not 1 <= low <= high <= candidates:
        wanted = str(low) if low == high else f"{low}-{high}"
        raise OptionError(
            f"`members` {wanted}: there are {candidates} candidates: raise `random`, give more `budgets`, or both"
        )


def quality(logits: CandidateLogits, chosen: Sequence[int]) -> Measure:
    """Returns the quality of the mean of the chosen candidates' probabilities."""
    inside = logits.inside[list(chosen)]
    if not inside.shape[1]:
        raise DataError("the selection data holds no ID samples")
    msp, correct, nll = [], 0, 0.0
    for samples in sample_chunks(inside):
        scaled, labels = scaled_logits(inside, samples, logits.temperature), logits.labels[samples]
        mean = mean_over_members(member_probabilities(scaled))
        msp.append(mean.max(-1))
        correct += int((mean.argmax(-1) == labels).sum())
        nll -= float(label_log_probabilities(scaled, labels).sum())
    outside = [_msp(own[list(chosen)], logits.temperature) for own in logits.outside]
    ordered, ood_samples = detection(np.concatenate(msp), outside)
    count = inside.shape[1]
    return Measure(correct, count, ordered, ood_samples=ood_samples, nll=nll / count)


def _msp(logits: NDArray[np.floating], temperature: float) -> NDArray[np.float64]:
    parts = [
        mean_over_members(member_probabilities(scaled_logits(logits, samples, temperature))).max(-1)
        for samples in sample_chunks(logits)
    ]
    return np.concatenate(parts)
