"""The multiply-adds of replaying a network with one head off, counted from shapes.

Heads of a layer may be a fraction: the mean of what is left after steps that are not known yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hydractl.checkpoint.heads import Head, KeptHeads
from hydractl.checkpoint.spec import ModelSpec, TextEmbeddings, TowerSpec


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
    """The forward pass that all replays start from."""
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


def candidate_costs(
    spec: ModelSpec, kept: KeptHeads, candidates: Iterable[Head], share: float = 1.0
) -> dict[Head, float]:
    """The cost of each candidate for one sample, or for one class prompt where it is in the tower of those.

    Args:
        kept: the network's heads, of one member.
        share: how much of every layer's heads are still on.
    """
    costs = {}
    for head in candidates:
        tower = spec.tower(head.tower)
        counts = [share * len(members[0]) for members in kept[head.tower]]
        costs[head] = candidate_cost(tower, counts, tokens_of(tower), head.layer)
    return costs
