"""Searches that measure fewer candidates exactly: by half precision first, or by a shortlist of gradients."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import torch

from hydractl.checkpoint.heads import Head
from hydractl.circuit.objective import Measures, Objective, SearchData
from hydractl.circuit.ranking import Progress, Ranking, Search, Shortcut
from hydractl.circuit.saliency import gate_scores
from hydractl.circuit.search import ablate
from hydractl.errors import DataError
from hydractl.model.assembly import copied
from hydractl.model.hydra import Hydra


def measure_screened(
    search: Search, network: Hydra, data: SearchData, growing: Sequence[Ranking], progress: Progress
) -> list[tuple[Ranking, Measures]]:
    """Returns each ranking with its account, and the exact measures of the candidates that it may choose from.

    In the first step all are measured both ways, and twice the largest difference becomes the margin: if precision
    costs no more later on, no winner is lost. That is a heuristic, but the choice is always made on exact measures.

    Args:
        growing: one ranking per objective; all have dropped the heads that `network` lacks.
    """
    dropped = growing[0].dropped
    left, drops, first = search.left(dropped), search.round(len(dropped)).drops, growing[0].shortcut is None
    halved = rough_network(network)
    full: Measures = ablate(network, data, left, progress) if first else {}
    rough = _rough_measures(halved, data, left, progress)
    if first:
        return [
            (replace(ranking, shortcut=Shortcut("margin", _margin(rough, full, ranking.objective), (len(left),))), full)
            for ranking in growing
        ]
    near = [tuple(_near_best(rough, left, drops, ranking)) for ranking in growing]
    # Each objective as if it were alone: what another one measures must show neither in choices nor in last digits.
    full_of = {some: ablate(network, data, some) for some in dict.fromkeys(near)}
    return [(_accounted(ranking, len(some)), full_of[some]) for ranking, some in zip(growing, near, strict=True)]


def rough_network(network: Hydra) -> Hydra:
    """Returns the network with its encoder layers in half precision.

    Embeddings and classifier are a thousandth of the work, and the classifier's rounding would be most of the error.
    """
    weight = next(network.parameters())
    rough = copied(network)
    for tower in network.spec.towers:
        # bfloat16 is what processors have fast products for; float16 has more digits and is as fast on a GPU.
        layers = rough.get_submodule(f"{tower.name}.layers")
        layers.to(torch.bfloat16 if weight.device.type == "cpu" else torch.float16)
    return rough


def _rough_measures(halved: Hydra, data: SearchData, left: Sequence[Head], progress: Progress) -> Measures:
    try:
        return ablate(halved, data, left, progress)
    except DataError as error:
        raise DataError("the model's logits are not finite in half precision: choose `search` exact") from error


def _margin(rough: Measures, full: Measures, objective: Objective) -> int:
    return 2 * max(abs(rough[head].rank(objective) - full[head].rank(objective)) for head in full)


def _near_best(rough: Measures, left: Sequence[Head], drops: int, ranking: Ranking) -> list[Head]:
    assert ranking.shortcut is not None
    ranks = {head: rough[head].rank(ranking.objective) for head in left}
    bar = sorted(ranks.values())[-drops] - ranking.shortcut.slack
    return [head for head in left if ranks[head] >= bar]


def _accounted(ranking: Ranking, checked: int) -> Ranking:
    assert ranking.shortcut is not None
    return replace(ranking, shortcut=ranking.shortcut._replace(checked=(*ranking.shortcut.checked, checked)))


def measure_shortlisted(
    search: Search,
    network: Hydra,
    data: SearchData,
    growing: Sequence[Ranking],
    progress: Progress,
    *,
    size: int,
) -> list[tuple[Ranking, Measures]]:
    """Returns each ranking with its account, and the exact measures of the candidates that it may choose from.

    The gradient is that of the ID loss, whatever the objective: it knows nothing of OOD samples. So the first step
    measures every candidate, chooses among all of them, and notes by how much the best of the shortlist falls short.

    Args:
        growing: one ranking per objective; all have dropped the heads that `network` lacks.
    """
    dropped = growing[0].dropped
    left, first = search.left(dropped), growing[0].shortcut is None
    few = _least_needed(network, data, left, size)
    measures: Measures = ablate(network, data, left if first else few, progress)
    return [(replace(ranking, shortcut=_account(ranking, measures, few)), measures) for ranking in growing]


def _least_needed(network: Hydra, data: SearchData, left: Sequence[Head], size: int) -> list[Head]:
    """Returns the candidates with the lowest gate scores, averaged over tasks, in candidate order."""
    if size >= len(left):
        return list(left)
    scores: dict[Head, float] = {}
    for tower in dict.fromkeys(head.tower for head in left):
        each = [gate_scores(network, task, tower) for task in data]
        scores |= {head: fmean(of_task[head] for of_task in each) for head in each[0]}
    chosen = set(sorted(left, key=scores.__getitem__)[:size])
    return [head for head in left if head in chosen]


def _account(ranking: Ranking, measures: Measures, few: Sequence[Head]) -> Shortcut:
    measured = [head for head in measures if head is not None]
    before = ranking.shortcut
    if before is None:
        best_of_all, best_of_few = (_best(measures, heads, ranking.objective) for heads in (measured, few))
        return Shortcut("gap", best_of_all - best_of_few, (len(measured),))
    return before._replace(checked=(*before.checked, len(measured)))


def _best(measures: Measures, heads: Sequence[Head], objective: Objective) -> int:
    return max(measures[head].rank(objective) for head in heads)
