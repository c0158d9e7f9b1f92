"""Agreement of choices of heads: shared heads, and divergence of their distributions over layers and heads.

Source: [HE] B.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from hydractl.checkpoint.heads import Head, in_candidate_order
from hydractl.circuit.ranking import Restriction
from hydractl.errors import ArtifactError, OptionError


@dataclass(frozen=True, eq=False)
class HeadList:
    """Heads that something drops.

    Attributes:
        name: its file, for messages.
        label: what tables may call it: the objective of a circuit, the method of head scores.
        count: how many heads it ranks; of a pruned model, how many it lacks.
        first: so many of them, the first dropped first where there is an order.
        restriction: what heads they were chosen from.
        sha256: the identity of the model they are of; None if unknown.
        towers: layers and heads of each tower, where they are known.
    """

    name: str
    kind: Literal["circuit", "scores", "model"]
    label: str | None
    count: int
    first: Callable[[int], Sequence[Head]]
    restriction: Restriction = field(default_factory=Restriction)
    sha256: str | None = None
    towers: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Overlap:
    """Agreement of two choices.

    Attributes:
        shared: the heads that both drop, in candidate order.
        over_layers: Jensen-Shannon divergence of the dropped heads' distributions over layers, in bits: 0 where they
            are the same, 1 where no layer loses heads to both.
        over_heads: that of the distributions over single heads: 0 where the heads are the same, 1 where none is.
        by_chance: how many heads two random choices would share, of as many from among the same.
    """

    names: tuple[str, str]
    shared: tuple[Head, ...]
    over_layers: float
    over_heads: float
    by_chance: float


def overlaps(dropped: Mapping[str, Sequence[Head]], chosen_from: Mapping[str, Sequence[Head]]) -> list[Overlap]:
    """Returns the overlap of each pair, in the order given.

    Args:
        dropped: heads by the name of their choice, one or more each.
        chosen_from: by the same names, the heads that were chosen from.
    """
    return [
        Overlap(
            (a, b),
            shared_by([dropped[a], dropped[b]]),
            layer_divergence(dropped[a], dropped[b]),
            over_heads=head_divergence(dropped[a], dropped[b]),
            by_chance=_by_chance(*((len(dropped[name]), set(chosen_from[name])) for name in (a, b))),
        )
        for a, b in combinations(dropped, 2)
    ]


def _by_chance(a: tuple[int, set[Head]], b: tuple[int, set[Head]]) -> float:
    """Returns how many heads two random choices share on average, given the size and the candidates of each."""
    both = len(a[1] & b[1])
    return both * (a[0] / len(a[1])) * (b[0] / len(b[1])) if both else 0.0


def shared_by(dropped: Sequence[Sequence[Head]]) -> tuple[Head, ...]:
    """Returns the heads that are in every one of the rankings, in candidate order."""
    first, *others = (set(heads) for heads in dropped)
    return tuple(in_candidate_order(first.intersection(*others)))


def layer_divergence(a: Sequence[Head], b: Sequence[Head]) -> float:
    """Returns the Jensen-Shannon divergence of two distributions of heads over layers, to base 2, 0 to 1."""
    # Layer 0 of one tower is not layer 0 of the other.
    return _divergence(*(Counter((head.tower, head.layer) for head in heads) for heads in (a, b)))


def head_divergence(a: Sequence[Head], b: Sequence[Head]) -> float:
    """Returns the divergence over single heads: for n heads each, 1 minus the share that both have."""
    return _divergence(Counter(a), Counter(b))


def _divergence(a: Counter[Any], b: Counter[Any]) -> float:
    from scipy.spatial.distance import jensenshannon

    places = sorted(a | b)
    # SciPy's is the distance, which is the root of the divergence.
    return float(jensenshannon([a[place] for place in places], [b[place] for place in places], base=2) ** 2)


def first_dropped(choices: Sequence[HeadList], budget: int | None) -> list[tuple[Head, ...]]:
    """Returns the first `budget` heads of each choice.

    The default budget is what a pruned model lacks, or else what the shortest circuit ranks.

    Raises:
        OptionError: fewer than two choices, one of fewer heads than the budget, or scores alone and no budget.
        ArtifactError: choices of different models, or one without heads.
    """
    if len(choices) < 2:
        raise OptionError("an overlap needs two or more choices of heads: name another")
    first = next((choice for choice in choices if choice.sha256), choices[0])
    for choice in choices:
        if choice.sha256 and choice.sha256 != first.sha256:
            raise ArtifactError(
                f"{choice.name}: is of another model (sha256 {choice.sha256[:12]}...) than {first.name} "
                f"({str(first.sha256)[:12]}...): only heads of one model can be compared"
            )
        if not choice.count:
            raise ArtifactError(f"{choice.name}: drops no head: name one that drops some")
    wanted = budget or _common_budget(choices)
    for choice in choices:
        if wanted > choice.count:
            raise OptionError(f"`budget` {wanted}: {choice.name} ranks {choice.count} heads: ask for fewer")
        if choice.kind == "model" and wanted < choice.count:
            raise OptionError(
                f"`budget` {wanted}: {choice.name} lacks {choice.count} heads in no known order: "
                f"compare {choice.count}, or name a circuit"
            )
    return [tuple(choice.first(wanted)) for choice in choices]


def _common_budget(choices: Sequence[HeadList]) -> int:
    """Returns the number of heads that a pruned model lacks, or that the shortest circuit ranks."""
    for kind in ("model", "circuit"):
        if counts := [choice.count for choice in choices if choice.kind == kind]:
            return min(counts)
    raise OptionError("head scores rank every head: choose with `budget` how many of the lowest to compare")


def table_names(choices: Sequence[HeadList]) -> list[str]:
    """Returns the names of choices in tables: their labels, or the names of their files if these differ more."""
    for names in (
        [choice.label or "" for choice in choices],
        [Path(choice.name).name.removesuffix(".json").removesuffix(".safetensors") for choice in choices],
        [choice.name for choice in choices],
    ):
        if all(names) and len(set(names)) == len(names):
            return names
    return [f"{choice.name} {number}" for number, choice in enumerate(choices, 1)]


def sizes(choices: Sequence[HeadList]) -> dict[str, tuple[int, int]]:
    """Returns layers and heads of each tower; as many as the heads name if no choice knows them."""
    for choice in choices:
        if choice.towers:
            return dict(choice.towers)
    found: dict[str, tuple[int, int]] = {}
    for head in in_candidate_order(head for choice in choices for head in choice.first(choice.count)):
        layers, heads = found.get(head.tower, (0, 0))
        found[head.tower] = max(layers, head.layer + 1), max(heads, head.head + 1)
    return found


def heads_of(grid: Mapping[str, tuple[int, int]]) -> list[Head]:
    """Returns every head of towers of so many layers and heads."""
    return [
        Head(tower, layer, head)
        for tower, (layers, heads) in grid.items()
        for layer in range(layers)
        for head in range(heads)
    ]
