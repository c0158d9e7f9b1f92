"""A selection: what selecting returns, and what steps that follow it make of the artifact and its networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.errors import OptionError
from hydractl.steps.inputs import ModelLike, as_member
from hydractl.steps.result import Result

if TYPE_CHECKING:
    from hydractl.artifacts import ModelReference
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.selection.artifact import Selection
    from hydractl.selection.members import Followed


@dataclass(frozen=True, eq=False, repr=False)
class Selected(Result):
    """The members that do best together.

    Attributes:
        content: the artifact `hydractl-selection`, plain JSON.
        checkpoint: the members, fused.
        selection: where the artifact was written, if it was.
        output: where the fused file was written, if it was.
    """

    content: Mapping[str, Any]
    checkpoint: Checkpoint
    selection: Path | None = None
    output: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return dict(self.content)

    def lines(self) -> Iterator[str]:
        from hydractl.report.selection import curve_lines

        yield from curve_lines(self.content)
        yield from (str(path) for path in (self.selection, self.output) if path is not None)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.selection import selection_facts

        return selection_facts(self.content)


if TYPE_CHECKING:
    SelectionLike = str | Path | Selected
else:  # what the command line derives flags from
    SelectionLike = Any


def write_selected(selected: Selected, force: bool) -> None:
    """Writes the artifact and the fused members where they are to be.

    Raises:
        OutputError: a file exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.artifacts import write_json
    from hydractl.families.open import write_checkpoint

    if selected.output is not None:
        write_checkpoint(selected.checkpoint, selected.output, force)
    if selected.selection is not None:
        write_json(Path(selected.selection), selected.content, force)


def follow(selection: SelectionLike, given: Sequence[ModelLike]) -> Followed:
    """A selection and the networks that it speaks of.

    Args:
        given: the network or members that are files, where they do not lie where the selection says.

    Raises:
        ArtifactError: the file cannot be read, or is no selection; a network that it names has changed.
        CheckpointError: a network cannot be read.
        OptionError: no selection, one that names no network where none is given, or a model that is not in it.
    """
    from hydractl.checkpoint.contents import identity
    from hydractl.selection.members import Followed

    followed = _as_selection(selection)
    known = {identity(model): model for model in map(as_member, given)}
    named = [member.file for member in followed.members if member.file is not None]
    files = {file.sha256: _found(followed, file, known) for file in named}
    network = _network(followed, {sha256: one for sha256, one in known.items() if sha256 not in files})
    if foreign := [model.name for sha256, model in known.items() if sha256 not in {*files, identity(network)}]:
        raise OptionError(f"{foreign[0]}: is neither the network nor a member of {followed.name}: leave it out")
    return Followed(followed, network, files)


def _as_selection(selection: SelectionLike) -> Selection:
    from hydractl.selection.artifact import read_selection, selection_of

    if isinstance(selection, str | Path):
        return read_selection(str(selection))
    content = getattr(selection, "content", None)
    if not isinstance(content, Mapping):
        raise OptionError(f"{type(selection).__name__}: is no selection: give a path, or what select returns")
    return selection_of(content)


def _network(selection: Selection, known: Mapping[str, Checkpoint]) -> Checkpoint:
    """The network that members are made of."""
    if selection.model is not None:
        return _found(selection, selection.model, known)
    if not known:
        raise OptionError(f"{selection.name}: names no network: name the `model`")
    return next(iter(known.values()))


def _found(selection: Selection, wanted: ModelReference, known: Mapping[str, Checkpoint]) -> Checkpoint:
    """A network that a selection names, among those given or where it says that it lies."""
    from hydractl.surgery.provenance import require_same_model

    if wanted.sha256 in known:
        return known[wanted.sha256]
    found = as_member(wanted.reference)
    require_same_model(found, selection.name, wanted)
    return found
