"""The multiply-adds of a search, counted from shapes: what a progress bar and a benchmark go by.

Heads of a layer may be a fraction: what is left on average after some steps that nobody knows yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hydractl.checkpoint.heads import Head, KeptHeads
from hydractl.checkpoint.spec import ModelSpec, TextEmbeddings, TowerSpec
from hydractl.circuit.ranking import Plan


def tokens_of(tower: TowerSpec) -> int:
    """How many tokens a sample has; of texts, whose lengths differ, the most it may have."""
    return tower.embeddings.max_tokens if isinstance(tower.embeddings, TextEmbeddings) else tower.embeddings.tokens


def layer_cost(tower: TowerSpec, heads: float, tokens: int) -> float:
    """A whole layer with so many heads on: projections, scores and mixtures, MLP."""
    rows = heads * tower.head_width
    return tokens * (4 * tower.width * rows + 2 * tokens * rows + 2 * tower.width * tower.mlp_width)


def pooled_layer_cost(tower: TowerSpec, heads: float, tokens: int) -> float:
    """The last layer where few tokens are read, their queries absorbed into the keys and W_V applied to mixtures."""
    rows = heads * tower.head_width
    one = 4 * tower.width * rows + 2 * heads * tokens * tower.width + 2 * tower.width * tower.mlp_width
    return tower.tokens_read * one


def tower_cost(tower: TowerSpec, heads: Sequence[float], tokens: int) -> float:
    """Every layer whole, as transformers computes them: what Algorithm 1 as printed pays for each candidate."""
    return sum(layer_cost(tower, count, tokens) for count in heads)


def base_cost(tower: TowerSpec, heads: Sequence[float], tokens: int) -> float:
    """The forward pass that the candidates of a round start from."""
    *counts, last = heads
    return tower_cost(tower, counts, tokens) + _last_cost(tower, last, tokens)


def candidate_cost(tower: TowerSpec, heads: Sequence[float], tokens: int, layer: int) -> float:
    """Replaying a candidate of `layer`: its contribution, that layer's MLP, and the layers above."""
    *counts, last = heads
    if layer == len(counts):
        after = tower.tokens_read or tokens
        return after * (tower.head_width + 2 * tower.mlp_width) * tower.width
    own = tokens * (tower.head_width + 2 * tower.mlp_width) * tower.width
    return own + tower_cost(tower, counts[layer + 1 :], tokens) + _last_cost(tower, last, tokens)


def _last_cost(tower: TowerSpec, heads: float, tokens: int) -> float:
    return (pooled_layer_cost if tower.tokens_read else layer_cost)(tower, heads, tokens)


def candidate_costs(spec: ModelSpec, kept: KeptHeads, candidates: Iterable[Head]) -> dict[Head, float]:
    """The cost of each candidate for one sample, or for one class prompt where it is in the tower of those."""
    costs = {}
    for head in candidates:
        tower = spec.tower(head.tower)
        counts = [len(members[0]) for members in kept[head.tower]]
        costs[head] = candidate_cost(tower, counts, tokens_of(tower), head.layer)
    return costs


def round_cost(spec: ModelSpec, kept: KeptHeads, plan: Plan, done: int) -> float:
    """What measuring every candidate once costs for one sample after `done` heads have left, evenly from all layers."""
    towers = {name: [len(members[0]) for members in kept[name]] for name in {head.tower for head in plan.candidates}}
    gone = done / len(plan.candidates)
    total = 0.0
    for head in plan.turn(done):
        counts = [count * (1 - gone) for count in towers[head.tower]]
        tower = spec.tower(head.tower)
        total += candidate_cost(tower, counts, tokens_of(tower), head.layer)
    # Whose turn it is all stand yet where layers take turns.
    return total if plan.mode == "headmap" else total * (1 - gone)


def search_cost(spec: ModelSpec, kept: KeptHeads, plan: Plan, done: int) -> float:
    """What is left of a search for one sample after `done` heads; nobody knows yet how many a screen will check."""
    total = 0.0
    while done < plan.budget:
        total += round_cost(spec, kept, plan, done) * plan.passes(done)
        done += plan.drops(done)
    return total
