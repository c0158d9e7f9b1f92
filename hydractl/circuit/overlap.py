"""How much circuits agree: the heads that several drop, and how differently they spread over the layers.

Source: [HE] B.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from hydractl.checkpoint.heads import Head, in_candidate_order
from hydractl.circuit.artifact import Circuit
from hydractl.errors import ArtifactError, OptionError


@dataclass(frozen=True)
class Overlap:
    """What two circuits have in common.

    Attributes:
        shared: the heads that both drop, in candidate order.
        divergence: Jensen-Shannon divergence of the dropped heads' distributions over layers, in bits: 0 where they
            are the same, 1 where no layer loses heads to both.
        by_chance: how many heads two random choices would share, of as many from among the same.
    """

    names: tuple[str, str]
    shared: tuple[Head, ...]
    divergence: float
    by_chance: float


def overlaps(dropped: Mapping[str, Sequence[Head]], chosen_from: Mapping[str, Sequence[Head]]) -> list[Overlap]:
    """The overlap of each pair, in the order given.

    Args:
        dropped: heads by the name of their circuit, one or more each.
        chosen_from: by the same names, the heads that a circuit was chosen from.
    """
    return [
        Overlap(
            (a, b),
            shared_by([dropped[a], dropped[b]]),
            layer_divergence(dropped[a], dropped[b]),
            _by_chance(*((len(dropped[name]), set(chosen_from[name])) for name in (a, b))),
        )
        for a, b in combinations(dropped, 2)
    ]


def _by_chance(a: tuple[int, set[Head]], b: tuple[int, set[Head]]) -> float:
    """Heads that are in a random choice of so many from each of two sets."""
    both = len(a[1] & b[1])
    return both * (a[0] / len(a[1])) * (b[0] / len(b[1])) if both else 0.0


def shared_by(dropped: Sequence[Sequence[Head]]) -> tuple[Head, ...]:
    """The heads that are in every one of the rankings, in candidate order."""
    first, *others = (set(heads) for heads in dropped)
    return tuple(in_candidate_order(first.intersection(*others)))


def layer_divergence(a: Sequence[Head], b: Sequence[Head]) -> float:
    """Jensen-Shannon divergence of two sets of heads' distributions over layers, logarithms to base 2, 0 to 1."""
    from scipy.spatial.distance import jensenshannon

    # Layer 0 of one tower is not layer 0 of the other.
    counts = [Counter((head.tower, head.layer) for head in heads) for heads in (a, b)]
    layers = sorted(counts[0] | counts[1])
    # SciPy's is the distance, which is the root of the divergence.
    return float(jensenshannon(*([count[layer] for layer in layers] for count in counts), base=2) ** 2)


def first_dropped(circuits: Sequence[Circuit], budget: int | None) -> list[tuple[Head, ...]]:
    """The first `budget` heads of each circuit, or as many as the shortest ranks.

    Raises:
        OptionError: fewer than two circuits, or one ranks fewer heads than the budget.
        ArtifactError: circuits of different models, or one without steps.
    """
    if len(circuits) < 2:
        raise OptionError("an overlap is of two circuits or more: name another")
    first = next((circuit for circuit in circuits if circuit.model), circuits[0])
    for circuit in circuits:
        if circuit.model and first.model and circuit.model.sha256 != first.model.sha256:
            raise ArtifactError(
                f"{circuit.name}: is of another model (sha256 {circuit.model.sha256[:12]}...) than {first.name} "
                f"({first.model.sha256[:12]}...): only circuits of one model have heads in common"
            )
        if not circuit.ranking:
            raise ArtifactError(f"{circuit.name}: drops no head: extract it with a larger budget")
    shortest = min(circuits, key=lambda circuit: len(circuit.ranking))
    if budget is not None and budget > len(shortest.ranking):
        raise OptionError(f"`budget` {budget}: {shortest.name} ranks {len(shortest.ranking)} heads: ask for fewer")
    return [circuit.ranking[: budget or len(shortest.ranking)] for circuit in circuits]


def names_of(circuits: Sequence[Circuit]) -> list[str]:
    """What tables call circuits: their objectives, or the names of their files where these tell more of them apart."""
    for names in (
        [circuit.objective or "" for circuit in circuits],
        [Path(circuit.name).stem for circuit in circuits],
        [circuit.name for circuit in circuits],
    ):
        if all(names) and len(set(names)) == len(names):
            return names
    return [f"{circuit.name} {number}" for number, circuit in enumerate(circuits, 1)]


def sizes(circuits: Sequence[Circuit]) -> dict[str, tuple[int, int]]:
    """Layers and heads of each tower; where no circuit tells them, as many as the rankings name."""
    for circuit in circuits:
        if circuit.model and circuit.model.towers:
            return dict(circuit.model.towers)
    found: dict[str, tuple[int, int]] = {}
    for head in in_candidate_order(head for circuit in circuits for head in circuit.ranking):
        layers, heads = found.get(head.tower, (0, 0))
        found[head.tower] = max(layers, head.layer + 1), max(heads, head.head + 1)
    return found


def choices(circuit: Circuit, grid: Mapping[str, tuple[int, int]]) -> tuple[Head, ...]:
    """The heads that a circuit was chosen from, of towers of so many layers and heads."""
    every = (
        Head(tower, layer, head)
        for tower, (layers, heads) in grid.items()
        for layer in range(layers)
        for head in range(heads)
    )
    return circuit.restriction.among(every)
