"""Whatever drops heads, as a choice of heads to compare: a circuit, head scores, a pruned model and its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from hydractl.steps.inputs import CircuitLike, ModelLike, ScoresLike, as_checkpoint, as_circuit, as_scores

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.artifact import Circuit
    from hydractl.circuit.overlap import Choice
    from hydractl.circuit.scores import Scores
    from hydractl.surgery.choose import Scope

    ChoiceLike = CircuitLike | ScoresLike | ModelLike
else:
    ChoiceLike = Any


def as_choices(given: ChoiceLike, scope: Scope | None) -> list[Choice]:
    """The choices of heads that something stands for: one, or one for each member of a model.

    Args:
        given: by path or by value; - is a circuit on standard input.
        scope: how head scores spread a budget; the whole model unless given.

    Raises:
        ArtifactError: a file that cannot be read, or is neither a circuit nor head scores.
        CheckpointError: a model that cannot be read.
        OptionError: something that is none of these.
    """
    if _holds_scores(given):
        return [_of_scores(as_scores(given), scope or "global")]
    if _is_circuit(given):
        return [_of_circuit(as_circuit(given))]
    return _of_members(as_checkpoint(cast("ModelLike", given)))


def _holds_scores(given: object) -> TypeGuard[ScoresLike]:
    from hydractl.artifacts import REMEDY
    from hydractl.circuit.scores import FORMAT, Scores
    from hydractl.errors import ArtifactError
    from hydractl.schema import STDIN, Origin, read_json

    if not isinstance(given, str | Path):
        return isinstance(getattr(given, "scores", given), Scores)
    if str(given) == STDIN or not _is_json(Path(given)):
        return False
    return read_json(str(given), Origin(str(given), ArtifactError, REMEDY)).fields.get("format") == FORMAT


def _is_circuit(given: object) -> TypeGuard[CircuitLike]:
    from hydractl.circuit.artifact import Circuit
    from hydractl.schema import STDIN

    if not isinstance(given, str | Path):
        return isinstance(getattr(given, "circuit", given), Circuit)
    return str(given) == STDIN or str(given).endswith(".json") or _is_json(Path(given))


def _is_json(path: Path) -> bool:
    """Whether a file holds text that begins as an object of JSON; weights begin with a number in eight bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(8)
    return begin.lstrip().startswith(b"{") and b"\0" not in begin


def _of_circuit(circuit: Circuit) -> Choice:
    from hydractl.circuit.overlap import Choice

    model, ranking = circuit.model, circuit.ranking
    return Choice(
        circuit.name,
        "circuit",
        circuit.objective,
        len(ranking),
        lambda budget: ranking[:budget],
        circuit.restriction,
        model.sha256 if model else None,
        model.towers if model else {},
    )


def _of_scores(scores: Scores, scope: Scope) -> Choice:
    from hydractl.circuit.overlap import Choice
    from hydractl.circuit.restriction import Restriction
    from hydractl.surgery.choose import by_scores

    values, model = scores.known(), scores.model
    return Choice(
        scores.name,
        "scores",
        scores.method,
        len(values),
        lambda budget: by_scores(values, budget, scope),
        Restriction(",".join(scores.towers)),
        model.sha256 if model else None,
        model.towers if model else {},
    )


def _of_members(checkpoint: Checkpoint) -> list[Choice]:
    from hydractl.checkpoint.heads import member_heads
    from hydractl.circuit.overlap import Choice, all_heads

    towers: dict[str, tuple[int, int]] = {tower.name: (tower.layers, tower.heads) for tower in checkpoint.spec.towers}
    every = all_heads(towers)
    gone = [
        [head for head in every if head not in kept]
        for kept in (set(member_heads(checkpoint.heads, member)) for member in range(checkpoint.members))
    ]
    source = _source(checkpoint.provenance)

    def choice(name: str, heads: Sequence[Head]) -> Choice:
        return Choice(name, "model", None, len(heads), lambda budget: heads[:budget], sha256=source, towers=towers)

    if checkpoint.members == 1:
        return [choice(checkpoint.name, gone[0])]
    return [choice(f"{checkpoint.name} member {member}", heads) for member, heads in enumerate(gone)]


def _source(provenance: Mapping[str, Any]) -> str | None:
    """The identity of the network that a member was first pruned from; None where its history does not say."""
    inputs = provenance.get("inputs")
    first = inputs[0] if isinstance(inputs, list) and inputs else None
    if not isinstance(first, Mapping):
        return None
    before = first.get("provenance")
    earlier = _source(before) if isinstance(before, Mapping) else None
    found = first.get("sha256") if provenance.get("command") == "prune" else None
    return earlier or (found if isinstance(found, str) else None)
