"""The multiply-adds of a search: what a progress bar goes by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.spec import ModelSpec
from hydractl.circuit.ablation import Progress
from hydractl.circuit.data import SearchData
from hydractl.circuit.pace import replay_seconds
from hydractl.circuit.ranking import Ranking, Round, Search
from hydractl.circuit.replay_cost import base_cost, candidate_costs, tokens_of
from hydractl.model.hydra import Hydra


def round_cost(spec: ModelSpec, kept: KeptHeads, search: Search, done: int) -> float:
    """What measuring every candidate once costs for one sample after `done` heads have left, evenly from all layers."""
    turn = search.round(done)
    costs = candidate_costs(spec, kept, turn.heads, share=1 - done / len(search.candidates))
    return sum(costs.values()) * turn.left / len(turn.heads)


def rounds(search: Search, done: int) -> Iterator[tuple[int, Round]]:
    """The rounds of a search after `done` heads, each with how many heads have left before it."""
    while done < search.budget:
        turn = search.round(done)
        yield done, turn
        done += turn.drops


def search_cost(spec: ModelSpec, kept: KeptHeads, search: Search, done: int) -> float:
    """What measuring a search's candidates after `done` heads costs for one sample, as far as it can be foreseen."""
    return sum(round_cost(spec, kept, search, gone) * turn.passes for gone, turn in rounds(search, done))


def networks(search: Search, done: int) -> float:
    """How many networks with a head off a search measures after `done` heads, as far as it can be foreseen."""
    return sum(turn.left * turn.passes for _, turn in rounds(search, done))


def seconds_of(model: Hydra, data: SearchData, search: Search, begun: Sequence[Ranking]) -> float | None:
    """About how long a process takes to measure what is left of a search, by a batch of ID and one of OOD samples.

    Reading the samples comes on top, see `hydractl.circuit.pace`. None where no candidate is in the tower that reads
    them: class prompts have too little work to time.
    """
    tower = model.spec.towers[0]
    reading = [head for head in search.candidates if head.tower == tower.name]
    if not reading:
        return None
    timed = [head for head in reading if head.layer == reading[len(reading) // 2].layer]
    base = base_cost(tower, [len(members[0]) for members in model.heads[tower.name]], tokens_of(tower))
    done = [len(ranking.steps) for ranking in begun]
    work = sum(search_cost(model.spec, model.heads, search, gone) for gone in done)
    # In every round the network itself runs too, for its candidates to start from.
    work += base * sum(1 for gone in done for _ in rounds(search, gone))
    times = work / (sum(candidate_costs(model.spec, model.heads, timed).values()) + base)
    pace = sum(
        replay_seconds(model, task, own, timed) * samples
        for task in data.tasks
        for own, samples in ((task.id, task.id_samples), (task.ood, task.ood_samples))
    )
    return pace * times / data.ranks.size


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
