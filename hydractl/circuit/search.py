"""The greedy search of Algorithm 1: drop the head that the network does best without, and again.

Source: [HE] D.1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hydractl.checkpoint.heads import Head
from hydractl.circuit.objective import Measure, Objective
from hydractl.circuit.round import Progress, SearchData, run_round
from hydractl.model.hydra import Hydra
from hydractl.model.without import without_heads

TieBreak = Literal["order", "nll"]


@dataclass(frozen=True)
class Step:
    """A head that was dropped, and how the network does without it and all before it."""

    head: Head
    measure: Measure


@dataclass(frozen=True)
class Ranking:
    """The heads dropped for one objective, first dropped first; `baseline` is the network with all of them."""

    objective: Objective
    baseline: Measure | None = None
    steps: tuple[Step, ...] = ()

    @property
    def dropped(self) -> frozenset[Head]:
        return frozenset(step.head for step in self.steps)


@dataclass(frozen=True)
class Plan:
    """What is searched for: `budget` heads among the candidates, which stand in candidate order.

    With `heads_per_step` above 1 a round drops so many of its best at once, which is no longer Algorithm 1.
    """

    candidates: tuple[Head, ...]
    budget: int
    tie_break: TieBreak = "order"
    heads_per_step: int = 1


def extract_circuits(
    model: Hydra,
    data: SearchData,
    plan: Plan,
    rankings: Sequence[Ranking],
    on_round: Callable[[Hydra, Sequence[Ranking]], Progress] = lambda network, grow: lambda group, samples: None,
    on_step: Callable[[Sequence[Ranking], Ranking], None] = lambda rankings, grown: None,
) -> list[Ranking]:
    """The rankings grown to the plan's budget, the same whatever they are grown together with.

    Objectives that have dropped the same heads so far share a round: always the first, often more.

    Args:
        model: of one member.
        rankings: one for each objective, empty or from an earlier run.
        on_round: told of each network whose candidates are measured, and which rankings grow by it; returns who is
            told of progress.
        on_step: told of all rankings whenever one of them has grown, and which.

    Raises:
        DataError: a logit is not finite, or ID samples have no labels.
    """
    found = list(rankings)
    while unfinished := [ranking for ranking in found if len(ranking.steps) < plan.budget]:
        dropped = min(unfinished, key=lambda ranking: len(ranking.steps)).dropped
        left = [head for head in plan.candidates if head not in dropped]
        network = without_heads(model, dropped)
        growing = [ranking for ranking in found if ranking.dropped == dropped]
        measures = run_round(network, data, left, on_round(network, growing))
        for ranking in growing:
            grown = _grown(ranking, measures, plan)
            found[found.index(ranking)] = grown
            on_step(found, grown)
    return found


def _grown(ranking: Ranking, measures: Mapping[Head | None, Measure], plan: Plan) -> Ranking:
    """The ranking with the best of a round dropped, the first in candidate order among equals."""

    def badness(head: Head) -> tuple[float, ...]:
        measure = measures[head]
        return -measure.rank(ranking.objective), measure.nll if plan.tie_break == "nll" else 0.0

    left = [head for head in plan.candidates if head in measures]
    count = min(plan.heads_per_step, plan.budget - len(ranking.steps))
    best = sorted(left, key=badness)[:count]
    steps = tuple(Step(head, measures[head]) for head in best)
    return replace(ranking, baseline=ranking.baseline or measures[None], steps=ranking.steps + steps)
