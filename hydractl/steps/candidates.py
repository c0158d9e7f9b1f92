"""What members are selected among, by the options of `select`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hydractl.bounds import MEMBERS, whole
from hydractl.errors import OptionError
from hydractl.steps.inputs import CircuitLike, ModelLike, ScoresLike, as_circuit, as_member, as_scores

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.circuit.artifact import Circuit
    from hydractl.circuit.scores import Scores

    Artifact = TypeVar("Artifact", Circuit, Scores)


def parse_members(members: str) -> tuple[int, int]:
    """How many members at least and at most, of `3` or `2-5`.

    Raises:
        OptionError: neither of these.
    """
    first, dash, last = str(members).partition("-")
    low, high = (whole(end, 1, MEMBERS) for end in (first, last if dash else first))
    if low is None or high is None or low > high:
        raise OptionError(f"`members` {members}: expected a number from 1 to {MEMBERS}, or two as in 2-5")
    return low, high


def named_circuits(circuit: Sequence[CircuitLike] | CircuitLike, network: Checkpoint) -> dict[str, Circuit]:
    """The circuits by name: their objectives, or numbers where these are not apart.

    Raises:
        ArtifactError: a circuit cannot be read or is of another model.
    """
    return _of_model([as_circuit(one) for one in _listed(circuit)], network, lambda one: one.objective or "circuit")


def named_scores(scores: Sequence[ScoresLike] | ScoresLike, network: Checkpoint) -> dict[str, Scores]:
    """The head scores by name: how they were computed, or numbers where these are not apart.

    Raises:
        ArtifactError: scores cannot be read or are of another model.
    """
    return _of_model([as_scores(one) for one in _listed(scores)], network, lambda one: one.method or "scores")


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else [given]


def _of_model(
    artifacts: Sequence[Artifact], network: Checkpoint, name_of: Callable[[Artifact], str]
) -> dict[str, Artifact]:
    from hydractl.surgery.provenance import require_same_model

    for one in artifacts:
        require_same_model(network, one.name, one.model)
    names = [name_of(one) for one in artifacts]
    return {
        name if names.count(name) == 1 else f"{name} {number}": one
        for number, (name, one) in enumerate(zip(names, artifacts, strict=True), 1)
    }


def existing_members(files: Sequence[ModelLike], network: Checkpoint) -> list[Checkpoint]:
    """The members in some files, which answer beside a network.

    Raises:
        CheckpointError: a file cannot be read.
        OptionError: it has several members, or other classes or another task than the network.
    """
    members = [as_member(file) for file in files]
    for member in members:
        if (theirs := _task(member)) != (own := _task(network)):
            raise OptionError(f"{member.name}: {theirs}, {network.name}: {own}: name members of one task")
        if member.labels and network.labels and member.labels != network.labels:
            raise OptionError(f"{member.name}: its classes have other names, or another order, than {network.name}'s")
    return members


def _task(model: Checkpoint) -> str:
    """What a model does, in words."""
    classes = len(model.labels or ()) or model.spec.classes
    return f"{model.spec.task} of {classes} classes" if classes else model.spec.task


def circuit_of_trunks(circuit: CircuitLike | None, trunks: Sequence[int], network: Checkpoint) -> Circuit | None:
    """The circuit that trunks follow; None where there are none, or they keep all their heads.

    Raises:
        OptionError: a circuit and no trunk.
    """
    if circuit is None:
        return None
    if not any(trunks):
        raise OptionError("`common_circuit` has no effect without `share_below`: leave it out")
    return next(iter(named_circuits([circuit], network).values()))
