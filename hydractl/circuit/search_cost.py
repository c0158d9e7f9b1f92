"""The multiply-adds of a search, counted from shapes: the unit of its progress.

Heads of a layer may be a fraction: the mean of those left after steps that are not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from hydractl.checkpoint.heads import Head, KeptHeads
from hydractl.checkpoint.spec import ModelSpec, TowerSpec
from hydractl.circuit.ranking import Ranking, Round, Search
from hydractl.circuit.replay import tokens_of
from hydractl.circuit.search import Progress
from hydractl.model.hydra import Hydra


def layer_cost(tower: TowerSpec, heads: float, tokens: int) -> float:
    """Counts a whole layer with so many heads on: projections, scores and mixtures, MLP."""
    rows = heads * tower.head_width
    return tokens * (4 * tower.width * rows + 2 * tokens * rows + 2 * tower.width * tower.mlp_width)


def pooled_layer_cost(tower: TowerSpec, heads: float, tokens: int) -> float:
    """Counts the last layer if few tokens are read: queries absorbed into the keys, W_V applied to mixtures."""
    rows = heads * tower.head_width
    one = 4 * tower.width * rows + 2 * heads * tokens * tower.width + 2 * tower.width * tower.mlp_width
    return tower.tokens_read * one


def tower_cost(tower: TowerSpec, heads: Sequence[float], tokens: int) -> float:
    """Counts every layer whole, as transformers computes them: the cost of a candidate in Algorithm 1 as printed."""
    return sum(layer_cost(tower, count, tokens) for count in heads)


def base_cost(tower: TowerSpec, heads: Sequence[float], tokens: int) -> float:
    """Counts the forward pass that all replays start from."""
    *counts, last = heads
    return tower_cost(tower, counts, tokens) + _last_cost(tower, last, tokens)


def candidate_cost(tower: TowerSpec, heads: Sequence[float], tokens: int, layer: int) -> float:
    """Counts the replay of a candidate of `layer`: its contribution, that layer's MLP, and the layers above."""
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
    """Returns the cost of each candidate for one sample, or for one class prompt if it is in the prompts' tower.

    Args:
        kept: the network's heads, of one member.
        share: the share of every layer's heads that are still on.
    """
    costs = {}
    for head in candidates:
        tower = spec.tower(head.tower)
        counts = [share * len(members[0]) for members in kept[head.tower]]
        costs[head] = candidate_cost(tower, counts, tokens_of(tower), head.layer)
    return costs


def round_cost(spec: ModelSpec, kept: KeptHeads, search: Search, done: int) -> float:
    """Counts measuring every candidate once, for one sample, after `done` heads have left evenly from all layers."""
    turn = search.round(done)
    costs = candidate_costs(spec, kept, turn.heads, share=1 - done / len(search.candidates))
    return sum(costs.values()) * turn.left / len(turn.heads)


def rounds(search: Search, done: int) -> Iterator[tuple[int, Round]]:
    """Yields the rounds of a search after `done` heads, each with the number of heads that have left before it."""
    while done < search.budget:
        turn = search.round(done)
        yield done, turn
        done += turn.drops


def search_cost(spec: ModelSpec, kept: KeptHeads, search: Search, done: int) -> float:
    """Counts measuring a search's candidates after `done` heads, for one sample, as far as it can be foreseen."""
    return sum(round_cost(spec, kept, search, gone) * turn.passes for gone, turn in rounds(search, done))


def networks(search: Search, done: int) -> float:
    """Counts the networks with a head off that a search measures after `done` heads, as far as it can be foreseen."""
    return sum(turn.left * turn.passes for _, turn in rounds(search, done))


def round_progress(
    model: Hydra,
    network: Hydra,
    search: Search,
    growing: Sequence[Ranking],
    *,
    samples: float,
    advance: Callable[[float], None],
) -> Progress:
    """Returns the progress of a round, which tells `advance` the share of `search_cost` of each group of candidates.

    Args:
        model: the network that the search began with.
        network: the same without the heads that have left.
        growing: the rankings that share the round.
        samples: how many this process measures the candidates on.
    """
    dropped = growing[0].dropped
    costs = candidate_costs(network.spec, network.heads, search.left(dropped))
    # The heads did not leave evenly: in all, the round still counts for what was foreseen.
    foreseen = len(growing) * round_cost(model.spec, model.heads, search, len(dropped))
    share = foreseen / sum(costs.values()) / samples
    return lambda group, count: advance(share * count * sum(costs[head] for head in group))
