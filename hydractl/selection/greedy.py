"""Greedy selection of members by the quality of their mean prediction.

Source: Caruana et al. 2004, without replacement, starting with no member.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from hydractl.circuit.objective import Measure, measure
from hydractl.data.samples import Labels
from hydractl.errors import DataError, OptionError
from hydractl.metrics.arrays import FloatArray, IntArray, sample_chunks, scaled_logits
from hydractl.tasks.task import Answers, Judged, Task

#: Multiply-adds of the network that these candidates, by number, are fused to.
Cost = Callable[[Sequence[int]], int]


@dataclass(frozen=True, eq=False)
class CandidateLogits:
    """The logits of candidates with K members in all on the selection samples, which are ID."""

    task: Task
    logits: NDArray[np.floating]  # `[K,N,C]` of the samples, or of the words of all
    labels: Labels  # `[N]` of these, or `[N,C]`
    temperature: float | None = 1.0  # of all candidates, as they are the same network's; None for the best of each
    members: Sequence[int] = ()  # how many each candidate has; none if each has one
    words: IntArray | None = None  # how many each sample has; None for other tasks

    @cached_property
    def variance(self) -> FloatArray | None:
        """The variance of labels that are numbers, `[C]`."""
        return self.task.variance(self.labels)

    @property
    def candidates(self) -> int:
        """The number of candidates."""
        return len(self.members) or len(self.logits)

    def rows(self, chosen: Sequence[int]) -> list[int]:
        """Returns the places of the members of some candidates."""
        if not self.members:
            return list(chosen)
        ends = list(accumulate(self.members))
        return [row for number in chosen for row in range(ends[number] - self.members[number], ends[number])]

    def temperature_of(self, chosen: Sequence[int]) -> float:
        """Returns the temperature of the mean of the chosen candidates."""
        if self.temperature is not None:
            return self.temperature
        return self.task.fit(
            Answers(task=self.task, member_logits=self.logits[self.rows(chosen)], truth=np.asarray(self.labels))
        ).temperature

    def judged(self, chosen: Sequence[int], temperature: float) -> Iterator[Judged]:
        """Yields how good the mean of the chosen candidates is, chunk by chunk of the samples."""
        answers = self.logits[self.rows(chosen)]
        uncut = [slice(0, answers.shape[1])]  # chunks would cut sentences
        for samples in sample_chunks(answers, least=1) if self.words is None else uncut:
            scaled = scaled_logits(answers, samples, temperature)
            judged = self.task.judge(scaled, self.labels[samples], self.variance)
            yield judged if self.words is None else judged.of_sentences(self.words)


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
    members: tuple[int, int],
    cost: Cost,
    *,
    among: Sequence[int] | None = None,
    within: Callable[[Sequence[int]], bool] = lambda chosen: True,
) -> MemberCurve:
    """Returns the members with the lowest loss together, found by adding the best candidate again and again.

    Among equally good candidates the cheapest joins, then the first.

    Args:
        members: how many at least and at most; between them the number with the lowest loss, then the least.
        cost: called wherever candidates tie.
        among: the candidates to choose from, by number; None for all.
        within: whether members together keep within the limits on cost; members stop joining when no candidate would.

    Raises:
        OptionError: fewer candidates than members, or a cost that so many members cannot keep to.
        DataError: a logit is not finite, or a set is empty.
    """
    among = range(logits.candidates) if among is None else among
    require_enough(members, len(among))
    low, high = members
    points: list[CurvePoint] = []
    while len(points) < high:
        before = tuple(point.candidate for point in points)
        trials = {k: quality(logits, (*before, k)) for k in among if k not in before and within((*before, k))}
        if not trials:
            break
        best = min(trial.nll for trial in trials.values())
        tied = [k for k, trial in trials.items() if trial.nll == best]
        winner = min(tied, key=lambda k: cost((*before, k))) if len(tied) > 1 else tied[0]
        points.append(CurvePoint(winner, trials[winner], cost((*before, winner))))
    if len(points) < low:
        raise OptionError(f"`members` {low}: only {len(points)} fit the cost budget: allow more, or drop more heads")
    counts = range(low, len(points) + 1)
    return MemberCurve(tuple(points), min(counts, key=lambda n: points[n - 1].quality.nll))


def require_enough(members: tuple[int, int], candidates: int) -> None:
    """Raises OptionError if so many members cannot be chosen among so many candidates."""
    low, high = members
    if not 1 <= low <= high <= candidates:
        requested = str(low) if low == high else f"{low}-{high}"
        raise OptionError(
            f"`members` {requested}: there are {candidates} candidates: raise `random`, give more `budgets`, or both"
        )


def quality(logits: CandidateLogits, chosen: Sequence[int]) -> Measure:
    """Returns the quality of the mean of the chosen candidates' probabilities."""
    count = logits.logits.shape[1] if logits.words is None else len(logits.words)
    if not count:
        raise DataError("the selection data holds no samples: give `id_data`")
    qualities, nll = [], 0.0
    for judged in logits.judged(chosen, logits.temperature_of(chosen)):
        assert judged.quality is not None and judged.loss is not None
        qualities.append(judged.quality)
        nll += float(judged.loss.sum())
    return measure(np.concatenate(qualities), np.zeros(0), (), nll / count, parts=logits.task.parts)
