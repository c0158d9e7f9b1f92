"""A shortlist: only the candidates that a gradient says the network needs least are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from hydractl.checkpoint.heads import Head
from hydractl.circuit.ablation import Progress, ablate
from hydractl.circuit.data import SearchData
from hydractl.circuit.objective import Measures, Objective
from hydractl.circuit.ranking import Ranking, Search, Shortcut
from hydractl.circuit.saliency import gate_scores
from hydractl.model.hydra import Hydra


def measure_shortlisted(
    search: Search,
    network: Hydra,
    data: SearchData,
    growing: Sequence[Ranking],
    progress: Progress,
    *,
    size: int,
) -> list[tuple[Ranking, Measures]]:
    """For each ranking the exact measures of the candidates it may choose from, and the ranking with its account.

    The gradient is that of the ID loss, whatever the objective: it knows nothing of OOD samples. So the first step
    measures every candidate, chooses among all of them, and notes by how much the best of the shortlist falls short.

    Args:
        growing: told apart by objective; all have dropped what `network` lacks.

    Raises:
        DataError: a logit is not finite, or ID samples have no labels.
    """
    dropped = growing[0].dropped
    left, first = search.left(dropped), growing[0].shortcut is None
    few = _least_needed(network, data, left, size)
    measures: Measures = ablate(network, data, left if first else few, progress)
    return [(replace(ranking, shortcut=_account(ranking, measures, few)), measures) for ranking in growing]


def _least_needed(network: Hydra, data: SearchData, left: Sequence[Head], size: int) -> list[Head]:
    """The candidates with the lowest gate scores, of several tasks the mean over them, in candidate order."""
    if size >= len(left):
        return list(left)
    scores: dict[Head, float] = {}
    for tower in dict.fromkeys(head.tower for head in left):
        each = [gate_scores(network, task, tower) for task in data.tasks]
        scores |= {head: fmean(of_task[head] for of_task in each) for head in each[0]}
    chosen = set(sorted(left, key=scores.__getitem__)[:size])
    return [head for head in left if head in chosen]


def _account(ranking: Ranking, measures: Measures, few: Sequence[Head]) -> Shortcut:
    measured = [head for head in measures if head is not None]
    before = ranking.shortcut
    if before is None:
        best_of_all, best_of_few = (_best(measures, heads, ranking.objective) for heads in (measured, few))
        return Shortcut("gap", best_of_all - best_of_few, (len(measured),))
    return replace(before, checked=(*before.checked, len(measured)))


def _best(measures: Measures, heads: Sequence[Head], objective: Objective) -> int:
    return max(measures[head].rank(objective) for head in heads)
