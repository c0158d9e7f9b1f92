"""Networks that may become members: prefixes of circuits, draws from their first heads, draws from all heads.

Candidates come in families. Those of a family with a trunk of L layers drop the same heads below layer L, none unless a
circuit says which, so that whichever of them are fused share these layers; members are chosen from one family.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hydractl.checkpoint.heads import Head, in_candidate_order, number_of_heads
from hydractl.errors import OptionError
from hydractl.surgery.choose import at_random, by_ranking


@dataclass(frozen=True)
class Candidate:
    """The network less some of its heads; `name` says where these come from."""

    name: str
    dropped: frozenset[Head]


DENSE = Candidate("dense", frozenset())


@dataclass(frozen=True)
class Family:
    """Candidates that may be fused with one another, each set of heads once; `trunk` is how many layers are alike."""

    trunk: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Sources:
    """Where candidates come from.

    Attributes:
        heads: all heads of the network.
        rankings: heads in the order in which a circuit drops them, by the circuit's name.
        budgets: how many heads to drop, over the whole network.
        pools: of how many first heads of a circuit to draw; a pool no larger than the budget is passed over.
        draws: how many for each circuit, budget and pool.
        random: how many draws from all heads for each budget.
        seed: the first of the draws' seeds.
        dense: whether the network itself is a candidate.
    """

    heads: Sequence[Head]
    rankings: Mapping[str, Sequence[Head]]
    budgets: Sequence[int] = ()
    pools: Sequence[int] = ()
    draws: int = 0
    random: int = 0
    seed: int = 0
    dense: bool = True


def family(sources: Sources, trunk: int = 0, common: Sequence[Head] = ()) -> Family:
    """The candidates with so many layers alike.

    Args:
        common: the ranking that says what all of them drop in these layers: its first heads, as many as the least
            budget has; without one they keep all heads there.

    Raises:
        OptionError: without a trunk, a circuit is shorter than a budget or a pool.
    """
    found: dict[frozenset[Head], Candidate] = {}
    below = []
    if trunk and common:
        below = [head for head in by_ranking(common, min(sources.budgets, default=0)) if head.layer < trunk]
    suffix = f" trunk {trunk}" if trunk else ""
    if sources.dense:
        _add(found, f"dense{suffix}", below)
    for budget in sources.budgets:
        if len(below) <= budget:
            for name, own in _own(sources, budget, budget - len(below), trunk):
                _add(found, f"{name}{suffix}", [*below, *own])
    return Family(trunk, tuple(found.values()))


def _add(found: dict[frozenset[Head], Candidate], name: str, dropped: Iterable[Head]) -> None:
    heads = frozenset(dropped)
    found.setdefault(heads, Candidate(name, heads))


def _own(sources: Sources, budget: int, left: int, trunk: int) -> Iterator[tuple[str, list[Head]]]:
    """What candidates of a budget drop from layer `trunk` on: `left` heads, by name."""
    seeds = range(sources.seed, sources.seed + max(sources.draws, sources.random))
    for name, ranking in sources.rankings.items():
        above = [head for head in ranking if head.layer >= trunk]
        if trunk and len(above) < left:
            continue  # so deep a trunk leaves the circuit too few heads to drop
        yield f"{name} {budget}", by_ranking(above, left)
        for pool in sources.pools:
            size = sum(head.layer >= trunk for head in ranking[:pool])
            if size > left:
                for seed in seeds[: sources.draws]:
                    yield f"{name} {budget} of {pool} seed {seed}", by_ranking(above, left, size, seed)
    every = in_candidate_order(head for head in sources.heads if head.layer >= trunk)
    for seed in seeds[: sources.random if left <= len(every) else 0]:
        yield f"random {budget} seed {seed}", at_random(every, left, seed)


def counts(name: str, text: str, heads: int, free: int | None = None) -> list[int]:
    """Numbers of heads, as `6,12` or `33%` of all, ascending and each once.

    Args:
        name: of the option, for messages.
        free: how many heads shares are of, where these are not all.

    Raises:
        OptionError: not a number of heads that there are.
    """
    found = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        count = number_of_heads(part, heads if free is None or not part.endswith("%") else free)
        if count is None:
            raise OptionError(
                f"`{name}` {part}: expected numbers from 0 to {heads}, or shares as in 33%, with commas between"
            )
        found.add(count)
    return sorted(found)
