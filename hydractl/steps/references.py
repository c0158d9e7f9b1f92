"""Models and artifacts that options name, checked against the network that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hydractl.errors import OptionError
from hydractl.steps.inputs import CircuitLike, ModelLike, ScoresLike, as_circuit, as_member, as_scores

if TYPE_CHECKING:
    from hydractl.artifacts import ModelReference
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.circuit.circuit_file import Circuit
    from hydractl.circuit.scores import ScoreTable
    from hydractl.selection.selection_file import Followed, Selection

    class HasContent(Protocol):
        """A result of selecting members."""

        @property
        def content(self) -> Mapping[str, Any]: ...

    SelectionLike = str | Path | HasContent
    Artifact = TypeVar("Artifact", Circuit, ScoreTable)
else:  # what the command line derives flags from
    SelectionLike = Any


def named_circuits(circuits: Sequence[CircuitLike] | CircuitLike, network: Checkpoint) -> dict[str, Circuit]:
    """Returns circuits by name: their objectives, with numbers if these are not unique.

    Raises:
        ArtifactError: a circuit cannot be read or is of another model.
    """
    return _by_name(map(as_circuit, _listed(circuits)), network, lambda one: one.objective or "circuit")


def named_scores(scores: Sequence[ScoresLike] | ScoresLike, network: Checkpoint) -> dict[str, ScoreTable]:
    """Returns head scores by name: their methods, with numbers if these are not unique.

    Raises:
        ArtifactError: scores cannot be read or are of another model.
    """
    return _by_name(map(as_scores, _listed(scores)), network, lambda one: one.method or "scores")


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else [given]


def _by_name(
    artifacts: Iterable[Artifact], network: Checkpoint, name_of: Callable[[Artifact], str]
) -> dict[str, Artifact]:
    from hydractl.surgery.provenance import require_same_model

    found = list(artifacts)
    for one in found:
        require_same_model(network, one.name, one.model)
    names = [name_of(one) for one in found]
    return {
        name if names.count(name) == 1 else f"{name} {number}": one
        for number, (name, one) in enumerate(zip(names, found, strict=True), 1)
    }


def existing_members(files: Sequence[ModelLike], network: Checkpoint) -> list[Checkpoint]:
    """Returns the members in some files, to measure beside a network.

    Raises:
        CheckpointError: a file cannot be read.
        OptionError: it has several members, or other classes or another task than the network.
    """
    members = [as_member(file) for file in files]
    for member in members:
        if (theirs := _task(member)) != (own := _task(network)):
            raise OptionError(f"{member.name}: {theirs}, {network.name}: {own}: name members of one task")
        if member.labels and network.labels and member.labels != network.labels:
            raise OptionError(f"{member.name}: its classes differ in name or order from those of {network.name}")
    return members


def _task(model: Checkpoint) -> str:
    classes = len(model.labels or ()) or model.spec.classes
    return f"{model.spec.task} of {classes} classes" if classes else model.spec.task


def follow(selection: SelectionLike, given: Sequence[ModelLike]) -> Followed:
    """Returns a selection and the networks that it names.

    Args:
        given: the network or members, if they have moved since.

    Raises:
        ArtifactError: the file cannot be read, or is no selection; a network that it names has changed.
        CheckpointError: a network cannot be read.
        OptionError: not a selection, a missing network, or a model that is not in it.
    """
    from hydractl.checkpoint.contents import identity
    from hydractl.selection.selection_file import Followed

    followed = _as_selection(selection)
    known = {identity(model): model for model in map(as_member, given)}
    named = [member.file for member in followed.members if member.file is not None]
    files = {file.sha256: _found(followed, file, known) for file in named}
    others = [model for sha256, model in known.items() if sha256 not in files]
    if followed.model is not None:
        network = _found(followed, followed.model, known)
    elif others:
        network = others[0]
    else:
        raise OptionError(f"{followed.name}: names no network: name the `model`")
    if foreign := [model.name for model in others if identity(model) != identity(network)]:
        raise OptionError(f"{foreign[0]}: is neither the network nor a member of {followed.name}: leave it out")
    return Followed(followed, network, files)


def _as_selection(selection: SelectionLike) -> Selection:
    from hydractl.selection.selection_file import read_selection, selection_of

    if isinstance(selection, str | Path):
        return read_selection(str(selection))
    content = getattr(selection, "content", None)
    if not isinstance(content, Mapping):
        raise OptionError(f"expected a selection (a path or the result of select), got {type(selection).__name__}")
    return selection_of(content)


def _found(selection: Selection, wanted: ModelReference, known: Mapping[str, Checkpoint]) -> Checkpoint:
    """Returns a network that a selection names, from those given or from where the selection says it lies."""
    from hydractl.surgery.provenance import require_same_model

    if wanted.sha256 in known:
        return known[wanted.sha256]
    found = as_member(wanted.reference)
    require_same_model(found, selection.name, wanted)
    return found
