"""What pruning returns: one network without some of its heads, or every member of a selection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.heads import Head
from hydractl.errors import OptionError
from hydractl.steps.result import Result

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.selection.members import Followed
    from hydractl.steps.inputs import DtypeLike


@dataclass(frozen=True, eq=False)
class PrunedMember:
    """A network of one member without some of its heads.

    Attributes:
        dropped: the heads it lost.
        output: where it was written, if it was.
    """

    checkpoint: Checkpoint
    dropped: Sequence[Head]
    output: Path | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Pruned(Result):
    """What was pruned: one network, or each member of a selection."""

    members: Sequence[PrunedMember]

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The networks, as every other step takes them."""
        return [member.checkpoint for member in self.members]

    @property
    def checkpoint(self) -> Checkpoint:
        """The one network that was pruned."""
        return self._only.checkpoint

    @property
    def dropped(self) -> Sequence[Head]:
        """The heads it lost."""
        return self._only.dropped

    @property
    def output(self) -> Path | None:
        """Where it was written, if it was."""
        return self._only.output

    @property
    def _only(self) -> PrunedMember:
        if len(self.members) > 1:
            raise OptionError(f"these are {len(self.members)} members: name one of the result's `members`")
        return self.members[0]

    def to_json(self) -> dict[str, Any]:
        listed = [
            {
                "output": None if member.output is None else str(member.output),
                "dropped": [head._asdict() for head in member.dropped],
            }
            for member in self.members
        ]
        return listed[0] if len(listed) == 1 else {"members": listed}

    def lines(self) -> Iterator[str]:
        yield from (str(member.output or member.checkpoint.name) for member in self.members)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.summary import key_facts

        if len(self.members) > 1:
            return {str(one.output or one.checkpoint.name): f"{len(one.dropped)} heads dropped" for one in self.members}
        return key_facts(self.checkpoint) | ({"file": self.output} if self.output else {})

    def guidance(self) -> Iterator[str]:
        from hydractl.report.changes import pruning_line

        for one in self.members:
            yield pruning_line(one.checkpoint, one.dropped, one.output)
        if written := [quote(str(one.output)) for one in self.members if one.output is not None]:
            members = " ".join(written) if len(written) > 1 else f"{written[0]} OTHER..."
            yield f"next: hydractl fuse {members} -o hydra.safetensors, after finetune where there are training data"


def output_file(
    output: str | Path | None, checkpoint: Checkpoint, options: Mapping[str, Any], force: bool
) -> Path | None:
    """The file to write, if any; in a folder its name says how it was made.

    Raises:
        OutputError: it exists and `force` is not set.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.surgery.provenance import telling_name

    if output is None:
        return None
    path = Path(output)
    if path.is_dir():
        path /= telling_name(checkpoint, options)
    refuse_existing(path, force)
    return path


def prune_members(followed: Followed, output: str | Path | None, dtype: DtypeLike | None, force: bool) -> Pruned:
    """Every member of a selection as a network of its own, in the order in which they were chosen.

    Raises:
        OptionError: one file for several members.
        OutputError: an output exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.checkpoint.folders import make_folder
    from hydractl.checkpoint.heads import in_candidate_order, member_heads
    from hydractl.checkpoint.outputs import output_paths
    from hydractl.families.open import write_checkpoint
    from hydractl.steps.compute import choose_dtype, dtype_name
    from hydractl.surgery.dtype import with_dtype
    from hydractl.surgery.provenance import with_provenance

    selection, members = followed.selection, followed.members
    stem = Path(followed.network.name).resolve().name.removesuffix(".safetensors")
    names = [f"{stem}-member{number}" for number in range(len(members))]
    paths = [None] * len(members) if output is None else output_paths(output, names)
    if str(output).endswith("/"):
        make_folder(Path(str(output)))
    for path in paths:
        if path is not None:
            refuse_existing(path, force)
    every = set(member_heads(followed.network.heads, 0))
    found = []
    for chosen, member, path in zip(selection.members, members, paths, strict=True):
        made_of = followed.network if chosen.file is None else member
        options = {
            "method": "selection",
            "candidate": chosen.candidate,
            "dtype": dtype_name(dtype),
            "search_data": selection.search_data,
        }
        pruned = with_provenance(with_dtype(member, choose_dtype(dtype)), "prune", [made_of], options)
        if path is not None:
            write_checkpoint(pruned, path, force)
        found.append(PrunedMember(pruned, in_candidate_order(every - set(member_heads(member.heads, 0))), path))
    return Pruned(tuple(found))
