"""Networks that may become members: prefixes of circuits, draws from their first heads, draws from all heads.

Candidates come in sets. Those of a set with a trunk of L layers keep all heads below layer L, so that fused candidates
share these layers. All members come from one set.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hydractl.checkpoint.heads import Head, in_candidate_order, number_of_heads
from hydractl.errors import OptionError
from hydractl.surgery.choose import at_random, by_ranking

#: The mean negative log-likelihood of the labels; and that at the temperature that fits these labels best.
SelectionObjective = Literal["nll", "calibrated"]


@dataclass(frozen=True)
class Candidate:
    """The network without some of its heads; `name` tells their source."""

    name: str
    dropped: frozenset[Head]


DENSE = Candidate("dense", frozenset())


@dataclass(frozen=True)
class CandidateSet:
    """Candidates that may be fused with one another, each set of heads once; `trunk` counts the layers they share."""

    trunk: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Sources:
    """The sources of candidates."""

    heads: Sequence[Head]  # all heads of the network
    rankings: Mapping[str, Sequence[Head]]  # heads in the order in which a circuit drops them, by the circuit's name
    budgets: Sequence[int] = ()  # how many heads to drop, over the whole network
    # Of how many first heads of a circuit to draw; a pool no larger than the budget is skipped.
    pools: Sequence[int] = ()
    draws: int = 0  # how many for each circuit, budget and pool
    random: int = 0  # how many draws from all heads for each budget
    seed: int = 0  # the first of the draws' seeds
    dense: bool = True  # whether the network itself is a candidate


def candidate_set(sources: Sources, trunk: int = 0) -> CandidateSet:
    """Returns the candidates that share so many layers, where they keep all heads.

    Raises:
        OptionError: without a trunk, a circuit is shorter than a budget or a pool.
    """
    candidates: dict[frozenset[Head], Candidate] = {}
    suffix = f" trunk {trunk}" if trunk else ""

    def add(name: str, dropped: Iterable[Head]) -> None:
        heads = frozenset(dropped)
        candidates.setdefault(heads, Candidate(f"{name}{suffix}", heads))

    if sources.dense:
        add("dense", [])
    for budget in sources.budgets:
        for name, dropped in _above(sources, budget, trunk):
            add(name, dropped)
    return CandidateSet(trunk, tuple(candidates.values()))


def _above(sources: Sources, budget: int, trunk: int) -> Iterator[tuple[str, list[Head]]]:
    """Yields by name the heads that candidates of a budget drop from layer `trunk` on."""
    seeds = range(sources.seed, sources.seed + max(sources.draws, sources.random))
    for name, ranking in sources.rankings.items():
        above = [head for head in ranking if head.layer >= trunk]
        if trunk and len(above) < budget:
            continue  # the circuit has too few heads above this trunk
        yield f"{name} {budget}", by_ranking(above, budget)
        for pool in sources.pools:
            size = sum(head.layer >= trunk for head in ranking[:pool])
            if size > budget:
                for seed in seeds[: sources.draws]:
                    yield f"{name} {budget} of {pool} seed {seed}", by_ranking(above, budget, size, seed)
    every = in_candidate_order(head for head in sources.heads if head.layer >= trunk)
    for seed in seeds[: sources.random if budget <= len(every) else 0]:
        yield f"random {budget} seed {seed}", at_random(every, budget, seed)


def counts(name: str, text: str, heads: int, free: int | None = None) -> list[int]:
    """Parses numbers of heads, as `6,12` or `33%` of all; returns them ascending and each once.

    Args:
        name: of the option, for messages.
        free: the number of heads that shares refer to; default: all.
    """
    numbers = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        count = number_of_heads(part, heads if free is None or not part.endswith("%") else free)
        if count is None:
            raise OptionError(
                f"`{name}` {part}: expected numbers from 0 to {heads}, or shares as in 33%, with commas between them"
            )
        numbers.add(count)
    return sorted(numbers)
