"""A round that measures only the candidates which a gradient says the network needs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from hydractl.checkpoint.heads import Head
from hydractl.circuit.objective import Objective
from hydractl.circuit.ranking import Measures, Ranking, Shortcut
from hydractl.circuit.round import Progress, SearchData, run_round
from hydractl.model.hydra import Hydra
from hydractl.scoring.gate import gate_scores
from hydractl.scoring.taylor import ScoringData


def shortlisted_round(
    network: Hydra, data: SearchData, left: Sequence[Head], size: int, growing: Sequence[Ranking], progress: Progress
) -> list[tuple[Ranking, Measures]]:
    """For each ranking the exact measures of the candidates it may choose from.

    The gradient is that of the ID loss, whatever the objective: it knows nothing of OOD samples. So the first step
    measures every candidate, chooses among all, and notes how far the best of the shortlist falls short.

    Args:
        left: the candidates.
        size: how many of them are shortlisted.
        growing: told apart by objective; all have dropped what `network` lacks.

    Raises:
        DataError: a logit is not finite, or ID samples have no labels.
    """
    few = _least_needed(network, data, left, size)
    first = growing[0].shortcut is None
    measures: Measures = run_round(network, data, left if first else few, progress)
    return [(replace(ranking, shortcut=_account(ranking, measures, few)), measures) for ranking in growing]


def _least_needed(network: Hydra, data: SearchData, left: Sequence[Head], size: int) -> list[Head]:
    """The candidates with the lowest gate scores, in candidate order."""
    if size >= len(left):
        return list(left)
    prompts = {name: torch.cat([batch[name] for batch in data.prompts]) for name in next(iter(data.prompts), {})}
    scoring = ScoringData(data.id, data.id_samples, prompts, data.ranks)
    scores: dict[Head, float] = {}
    for tower in dict.fromkeys(head.tower for head in left):
        scores |= gate_scores(network, scoring, tower)
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
