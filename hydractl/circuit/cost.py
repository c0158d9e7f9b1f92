"""The multiply-adds of a search: what a progress bar goes by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.spec import ModelSpec
from hydractl.circuit.ranking import Ranking, Search
from hydractl.model.hydra import Hydra
from hydractl.scoring.ablation import Progress, replay_seconds
from hydractl.scoring.data import ScoringData
from hydractl.scoring.replay_cost import base_cost, candidate_costs, tokens_of


def round_cost(spec: ModelSpec, kept: KeptHeads, search: Search, done: int) -> float:
    """What measuring every candidate once costs for one sample after `done` heads have left, evenly from all layers."""
    turn = search.round(done)
    costs = candidate_costs(spec, kept, turn.heads, share=1 - done / len(search.candidates))
    return sum(costs.values()) * turn.left / len(turn.heads)


def search_cost(spec: ModelSpec, kept: KeptHeads, search: Search, done: int) -> float:
    """What is left of a search for one sample after `done` heads, as far as it can be foreseen."""
    total = 0.0
    while done < search.budget:
        turn = search.round(done)
        total += round_cost(spec, kept, search, done) * turn.passes
        done += turn.drops
    return total


def networks(search: Search, done: int) -> float:
    """How many networks with a head off a search measures after `done` heads, as far as it can be foreseen."""
    total = 0.0
    while done < search.budget:
        turn = search.round(done)
        total += turn.left * turn.passes
        done += turn.drops
    return total


def seconds_of(model: Hydra, data: ScoringData, search: Search, multiply_adds: float) -> float | None:
    """About how long so many multiply-adds of a search take for all samples of a process, from a timed batch.

    None where no candidate is in the tower that reads the samples: class prompts have too little work to time.
    """
    tower = model.spec.towers[0]
    reading = [head for head in search.candidates if head.tower == tower.name]
    if not reading:
        return None
    timed = [head for head in reading if head.layer == reading[len(reading) // 2].layer]
    kept = [len(members[0]) for members in model.heads[tower.name]]
    counted = sum(candidate_costs(model.spec, model.heads, timed).values()) + base_cost(tower, kept, tokens_of(tower))
    rate = replay_seconds(model, data, timed) / counted
    return rate * multiply_adds * (data.id_samples + data.ood_samples) / data.ranks.size


def round_progress(
    model: Hydra,
    network: Hydra,
    search: Search,
    growing: Sequence[Ranking],
    samples: float,
    advance: Callable[[float], None],
) -> Progress:
    """Tells `advance` how much of `search_cost` each group of candidates was, while a round measures them.

    Args:
        model: what the search began with.
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
