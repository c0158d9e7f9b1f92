"""Selections in their JSON form, `hydractl-selection`, and the networks that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.artifacts import Artifact, ModelReference, NamedHead, artifact_in_memory, follow_artifact, found_reference
from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.checkpoint.heads import Head, Unit, in_candidate_order
from hydractl.circuit.objective import Measure
from hydractl.schema import Checked, Items, Schema

if TYPE_CHECKING:
    import torch

    from hydractl.selection.pool import CandidatePool, Outcome

FORMAT = "hydractl-selection"
VERSION = 1


class Member(Schema, extra="ignore"):
    """A chosen member: the network without some heads, or a file of its own, named by its place and identity.

    Attributes:
        units: the MLP units that the network loses, by tower and layer.
    """

    candidate: str = ""
    dropped: Items[NamedHead] | None = None
    units: Mapping[str, Items[Items[int]]] = field(default_factory=dict)
    reference: Annotated[str, Checked(min_length=1, max_length=4096)] | None = None
    sha256: Annotated[str, Checked(pattern="^[0-9a-f]{64}$")] | None = None

    def __post_init__(self) -> None:
        is_file = self.reference is not None and self.sha256 is not None
        if is_file == (self.dropped is not None):
            raise ValueError("a member has either the heads that it drops or a file's reference and sha256")

    @property
    def heads(self) -> frozenset[Head]:
        """The heads that the network loses; none for a file."""
        return frozenset(self.dropped or ())

    @property
    def lost_units(self) -> list[Unit]:
        """The MLP units that the network loses."""
        return [
            Unit(tower, layer, unit)
            for tower, layers in self.units.items()
            for layer, lost in enumerate(layers)
            for unit in lost
        ]

    @property
    def file(self) -> ModelReference | None:
        """The file; None for the network without some heads."""
        return None if self.dropped is not None else ModelReference(self.reference or "", self.sha256 or "")


class Selection(Artifact):
    """A selection as `fuse` and `prune` follow it; `options` are those that determined it, for its members' history."""

    members: Annotated[Items[Member], Checked(min_length=1)]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Followed:
    """A selection and the networks that it names."""

    selection: Selection
    network: Checkpoint
    files: Mapping[str, Checkpoint]  # the members that are files of their own, by their identity

    @property
    def members(self) -> list[Checkpoint]:
        """The members in the order in which they were chosen; nothing is read yet."""
        from hydractl.surgery.slicing import drop_heads, drop_units

        checkpoints = []
        for member in self.selection.members:
            if member.file is not None:
                checkpoints.append(self.files[member.file.sha256])
            else:
                pruned, units = drop_heads(self.network, member.heads), member.lost_units
                checkpoints.append(drop_units(pruned, units) if units else pruned)
        return checkpoints

    def fused(self, separate: Iterable[str] | None = None, dtype: torch.dtype | None = None) -> Checkpoint:
        """Returns the network that its members make together, with its history; see `hydractl.surgery.fusion.fuse`."""
        from hydractl.selection.pool import together
        from hydractl.surgery.provenance import SEEN

        how = {
            "separate": None if separate is None else sorted(separate),
            "fused_dtype": None if dtype is None else str(dtype),
        }
        options = {**self.selection.options, **how, SEEN: self.selection.search_data}
        return with_selection(together(self.members, separate, dtype), self.network, list(self.files.values()), options)


def with_selection(
    fused: Checkpoint, network: Checkpoint, files: Sequence[Checkpoint], options: Mapping[str, Any]
) -> Checkpoint:
    """Returns a fused network with its history, the same whether made at once or from a selection's file.

    Args:
        files: members that are files, each once, in the order in which they were chosen.
        options: those of the selection, and under `SEEN` the samples that it depends on.
    """
    from hydractl.surgery.provenance import with_provenance

    return with_provenance(fused, "select", [network, *files], options)


def selection_json(
    outcome: Outcome, candidates: CandidatePool, objective: str, origin: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a selection as plain JSON.

    Args:
        origin: what it was made from and how: `model`, `options`, `search_data`, `versions`.
    """
    from hydractl.tasks.all_tasks import find_task

    key = find_task(candidates.network.spec.task).key
    names, lost = candidates.names, candidates.units(outcome.curve.chosen, outcome.trunk)
    members = zip(outcome.curve.chosen, lost, strict=True)
    return {
        "format": FORMAT,
        "version": VERSION,
        "objective": objective,
        "members": [_member(candidates, number, units) for number, units in members],
        "trunk": outcome.trunk,
        "baseline": {**_numbers(outcome.baseline, key), "multiply_adds": candidates.cost([0])},
        "curve": [
            {"candidate": names[point.candidate], **_numbers(point.quality, key), "multiply_adds": point.multiply_adds}
            for point in outcome.curve.points
        ],
        "candidates": names,
        **origin,
    }


def _member(candidates: CandidatePool, number: int, lost: Sequence[Unit]) -> dict[str, Any]:
    if number >= len(candidates.dropped):
        member = candidates.checkpoint(number)
        return {"candidate": candidates.names[number], "reference": member.name, "sha256": identity(member)}
    chosen = candidates.dropped[number]
    units: dict[str, list[list[int]]] = {}
    for unit in in_candidate_order(lost):
        layers = units.setdefault(unit.tower, [[] for _ in candidates.network.heads[unit.tower]])
        layers[unit.layer].append(unit.unit)
    dropped = [head._asdict() for head in in_candidate_order(chosen.dropped)]
    return {"candidate": chosen.name, "dropped": dropped, **({"units": units} if units else {})}


def _numbers(quality: Measure, key: str) -> dict[str, float | None]:
    return {key: quality.accuracy, "auroc": quality.auroc, "nll": quality.nll}


def read_selection(source: str) -> Selection:
    """Reads a selection from the file `source`, or from standard input for `-`.

    Its references come back relative to the current folder.

    Raises:
        ArtifactError: not a selection, or a member that is neither heads to drop nor a file.
    """
    selection = follow_artifact(source, Selection, FORMAT, VERSION)
    members = tuple(
        member if member.file is None else replace(member, reference=found_reference(member.file.reference, source))
        for member in selection.members
    )
    return replace(selection, members=members)


def selection_of(content: Mapping[str, Any]) -> Selection:
    """Returns the selection that `selection_json` wrote."""
    return artifact_in_memory(content, Selection, "the selection")
