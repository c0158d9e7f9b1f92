"""Agreement of choices of heads: shared heads, and divergence of their distributions over layers and heads.

Source: [HE] B.2.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from scipy.spatial.distance import jensenshannon

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, in_candidate_order, member_heads
from hydractl.circuit.circuit_file import Circuit
from hydractl.circuit.ranking import Restriction
from hydractl.circuit.scores import ScoreTable
from hydractl.errors import ArtifactError, OptionError
from hydractl.surgery.choose import Scope, by_scores


@dataclass(frozen=True, eq=False)
class HeadList:
    """Heads that something drops."""

    name: str  # its file, for messages
    kind: Literal["circuit", "scores", "model"]
    label: str | None  # what tables may call it: the objective of a circuit, the method of head scores
    count: int  # how many heads it ranks; of a pruned model, how many it lacks
    first: Callable[[int], Sequence[Head]]  # so many of them, the first dropped first where there is an order
    restriction: Restriction = field(default_factory=Restriction)  # what heads they were chosen from
    sha256: str | None = None  # the identity of the model they are of; None if unknown
    # Layers and heads of each tower, where they are known.
    towers: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Overlap:
    """Agreement of two choices of as many heads."""

    names: tuple[str, str]
    shared: tuple[Head, ...]  # the heads that both drop, in candidate order
    # Jensen-Shannon divergence of the dropped heads' distributions over layers, in bits: 0 where they are the same, 1
    # where no layer loses heads to both.
    over_layers: float
    over_heads: float  # that of the distributions over single heads, which is the share of heads that differ
    by_chance: float  # how many heads two random choices would share, of as many from among the same


def list_of_circuit(circuit: Circuit) -> HeadList:
    """Returns the heads that a circuit drops."""
    return HeadList(
        circuit.name,
        "circuit",
        label=circuit.objective,
        count=len(circuit.ranking),
        first=lambda budget: circuit.ranking[:budget],
        restriction=circuit.restriction,
        sha256=circuit.model.sha256 if circuit.model else None,
        towers=circuit.model.towers if circuit.model else {},
    )


def list_of_scores(scores: ScoreTable, scope: Scope) -> HeadList:
    """Returns the heads with the lowest scores."""
    values = scores.known()
    return HeadList(
        scores.name,
        "scores",
        label=scores.method,
        count=len(values),
        first=lambda budget: by_scores(values, budget, scope),
        restriction=Restriction(",".join(scores.towers)),
        sha256=scores.model.sha256 if scores.model else None,
        towers=scores.model.towers if scores.model else {},
    )


def list_of_member(checkpoint: Checkpoint, member: int) -> HeadList:
    """Returns the heads that a member lacks."""
    towers: dict[str, tuple[int, int]] = {tower.name: (tower.layers, tower.heads) for tower in checkpoint.spec.towers}
    kept = set(member_heads(checkpoint.heads, member))
    gone = [head for head in heads_of(towers) if head not in kept]
    name = checkpoint.name if checkpoint.members == 1 else f"{checkpoint.name} member {member}"
    source = _source(checkpoint.provenance)
    return HeadList(name, "model", None, len(gone), lambda budget: gone[:budget], sha256=source, towers=towers)


def _source(provenance: Any) -> str | None:
    """Returns the identity of the network that a member was first pruned from; None if its history does not say."""
    found = None
    while isinstance(provenance, Mapping) and isinstance(inputs := provenance.get("inputs"), list) and inputs:
        first = inputs[0] if isinstance(inputs[0], Mapping) else {}
        if provenance.get("command") == "prune":
            found = str(first.get("sha256"))
        provenance = first.get("provenance")
    return found


def overlaps(dropped: Mapping[str, Sequence[Head]], chosen_from: Mapping[str, Sequence[Head]]) -> list[Overlap]:
    """Returns the overlap of each pair, in the order given.

    Args:
        dropped: heads by the name of their choice, as many each.
        chosen_from: by the same names, the heads that were chosen from.
    """
    found = []
    for names in combinations(dropped, 2):
        a, b = (dropped[name] for name in names)
        pools = [set(chosen_from[name]) for name in names]
        shared, likely = shared_by([a, b]), [len(a) / max(1, len(pool)) for pool in pools]
        by_chance = len(pools[0] & pools[1]) * likely[0] * likely[1]
        apart = 1 - len(shared) / len(a)
        found.append(Overlap(names, shared, layer_divergence(a, b), over_heads=apart, by_chance=by_chance))
    return found


def shared_by(dropped: Sequence[Sequence[Head]]) -> tuple[Head, ...]:
    """Returns the heads that are in every one of the rankings, in candidate order."""
    return tuple(in_candidate_order(set.intersection(*map(set, dropped))))


def layer_divergence(a: Sequence[Head], b: Sequence[Head]) -> float:
    """Returns the Jensen-Shannon divergence of two distributions of heads over layers, to base 2, 0 to 1."""
    # Layer 0 of one tower is not layer 0 of the other.
    first, second = (Counter((head.tower, head.layer) for head in heads) for heads in (a, b))
    layers = sorted(first | second)
    # SciPy's is the distance, which is the root of the divergence.
    return float(jensenshannon([first[layer] for layer in layers], [second[layer] for layer in layers], base=2) ** 2)


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
    for kind in ("model", "circuit"):
        if counts := [choice.count for choice in choices if choice.kind == kind]:
            return min(counts)
    raise OptionError("head scores rank every head: choose with `budget` how many of the lowest to compare")


def table_names(choices: Sequence[HeadList]) -> list[str]:
    """Returns the names of choices in tables: their labels, or those of their files where labels are not unique."""
    labels = [choice.label or "" for choice in choices]
    if all(labels) and len(set(labels)) == len(labels):
        return labels
    files = [Path(choice.name).name.removesuffix(".json").removesuffix(".safetensors") for choice in choices]
    return [name if files.count(name) == 1 else f"{name} {place}" for place, name in enumerate(files, 1)]


def sizes(choices: Sequence[HeadList]) -> dict[str, tuple[int, int]]:
    """Returns layers and heads of each tower; as many as the heads name if no choice knows them."""
    if known := next((choice.towers for choice in choices if choice.towers), None):
        return dict(known)
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
