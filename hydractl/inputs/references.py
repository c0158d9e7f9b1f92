"""Models and artifacts that options name, checked against the network that they belong to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydractl.artifacts import ModelReference
from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.circuit.circuit_file import Circuit, CircuitLike, as_circuit
from hydractl.errors import OptionError
from hydractl.inputs.arguments import ModelLike, as_member, as_several
from hydractl.selection.selection_file import Followed, Selection, read_selection, selection_of
from hydractl.surgery.provenance import require_same_model
from hydractl.text import composed_all

SelectionLike = Any  #: a path, or the result of `select`


def named_circuits(circuits: Sequence[CircuitLike] | CircuitLike, network: Checkpoint) -> dict[str, Circuit]:
    """Returns circuits by name: their objectives, with numbers if these are not unique.

    Raises:
        ArtifactError: a circuit cannot be read or is of another model.
    """
    read = [as_circuit(circuit) for circuit in as_several(circuits)]
    for circuit in read:
        require_same_model(network, circuit.name, circuit.model)
    names = [circuit.objective or "circuit" for circuit in read]
    return {
        name if names.count(name) == 1 else f"{name} {number}": circuit
        for number, (name, circuit) in enumerate(zip(names, read, strict=True), 1)
    }


def existing_members(files: Sequence[ModelLike], network: Checkpoint) -> list[Checkpoint]:
    """Returns the members in some files, to measure beside a network.

    Raises:
        CheckpointError: a file cannot be read.
        OptionError: it has several members, or other classes or another task than the network.
    """
    members = [as_member(file) for file in files]
    for member in members:
        differ = member.labels and network.labels and composed_all(member.labels) != composed_all(network.labels)
        if differ or _task(member) != _task(network):
            raise OptionError(f"{member.name}: its task or its classes differ from those of {network.name}")
    return members


def _task(model: Checkpoint) -> tuple[str, int | None]:
    return model.spec.task, len(model.labels or ()) or model.spec.classes


def follow(selection: SelectionLike, models: Sequence[ModelLike]) -> Followed:
    """Returns a selection and the networks that it names.

    Args:
        models: the network or members, if they have moved since.

    Raises:
        ArtifactError: the file cannot be read, or is no selection; a network that it names has changed.
        CheckpointError: a network cannot be read.
        OptionError: not a selection, a missing network, or a model that is not in it.
    """
    if isinstance(selection, str | Path):
        followed = read_selection(str(selection))
    elif isinstance(content := getattr(selection, "content", None), Mapping):
        followed = selection_of(content)
    else:
        raise OptionError(f"expected a selection (a path or the result of select), got {type(selection).__name__}")
    by_hash = {identity(model): model for model in map(as_member, models)}
    references = [member.file for member in followed.members if member.file is not None]
    files = {file.sha256: _found(followed, file, by_hash) for file in references}
    others = [model for sha256, model in by_hash.items() if sha256 not in files]
    if followed.model is not None:
        network = _found(followed, followed.model, by_hash)
    elif others:
        network = others[0]
    else:
        raise OptionError(f"{followed.name}: names no network: name the `model`")
    if foreign := [model.name for model in others if identity(model) != identity(network)]:
        raise OptionError(f"{foreign[0]}: is neither the network nor a member of {followed.name}: leave it out")
    return Followed(followed, network, files)


def _found(selection: Selection, reference: ModelReference, by_hash: Mapping[str, Checkpoint]) -> Checkpoint:
    """Returns a network that a selection names, from those given or from where the selection says it lies."""
    if reference.sha256 in by_hash:
        return by_hash[reference.sha256]
    network = as_member(reference.reference)
    require_same_model(network, selection.name, reference)
    return network
