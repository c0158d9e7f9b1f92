"""The greedy search of Algorithm 1: drop the head that the network does best without, and again.

Source: [HE] D.1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hydractl.checkpoint.heads import Head
from hydractl.circuit.ablation import Progress
from hydractl.circuit.data import SearchData
from hydractl.circuit.objective import Measures
from hydractl.circuit.ranking import Ranking, Search, Step
from hydractl.model.assembly import without_heads
from hydractl.model.hydra import Hydra


def extract_circuits(
    model: Hydra,
    data: SearchData,
    search: Search,
    rankings: Sequence[Ranking],
    on_round: Callable[[Hydra, Sequence[Ranking]], Progress] = lambda network, growing: lambda group, samples: None,
    on_step: Callable[[Sequence[Ranking], Ranking], None] = lambda rankings, grown: None,
) -> list[Ranking]:
    """The rankings grown to the search's budget, each the same as if it were grown alone.

    Objectives that have dropped the same heads so far share a round: always the first, often more.

    Args:
        model: of one member.
        rankings: one for each objective, empty or from an earlier run.
        on_round: told of each network whose candidates are measured, and which rankings grow by it; returns who is
            told of progress.
        on_step: told of all rankings whenever one of them has grown, and which.

    Raises:
        DataError: a logit is not finite, or ID samples have no labels.
        OptionError: a screened search of a model in half precision.
    """
    found = list(rankings)
    while unfinished := [ranking for ranking in found if len(ranking.steps) < search.budget]:
        dropped = min(unfinished, key=lambda ranking: len(ranking.steps)).dropped
        network = without_heads(model, dropped)
        growing = [ranking for ranking in found if ranking.dropped == dropped]
        measured = search.mode.measure(search, network, data, growing, on_round(network, growing))
        for ranking, (accounted, measures) in zip(growing, measured, strict=True):
            grown = _grown(accounted, measures, search)
            found[found.index(ranking)] = grown
            on_step(found, grown)
    return found


def _grown(ranking: Ranking, measures: Measures, search: Search) -> Ranking:
    """The ranking with the best of a round dropped, the first in candidate order among equals."""

    def badness(head: Head) -> tuple[float, ...]:
        measure = measures[head]
        return -measure.rank(ranking.objective), measure.nll if search.tie_break == "nll" else 0.0

    choice = [head for head in search.candidates if head in measures]
    best = sorted(choice, key=badness)[: search.round(len(ranking.steps)).drops]
    steps = tuple(Step(head, measures[head]) for head in best)
    return replace(ranking, baseline=ranking.baseline or measures[None], steps=ranking.steps + steps)
