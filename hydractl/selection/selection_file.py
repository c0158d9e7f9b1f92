"""Selections in their JSON form, `hydractl-selection`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.artifacts import Artifact, NamedHead, follow_artifact
from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.heads import Head, in_candidate_order
from hydractl.circuit.objective import Measure
from hydractl.schema import Checked, Items, Schema

if TYPE_CHECKING:
    from hydractl.selection.pool import CandidatePool, Outcome

FORMAT = "hydractl-selection"
VERSION = 1


class Member(Schema, extra="ignore"):
    """A chosen member: the network without some heads, or a file of its own, named by its place and identity."""

    candidate: str = ""
    dropped: Items[NamedHead] | None = None
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


class Selection(Artifact):
    """A selection, as `inspect` describes it."""

    members: Annotated[Items[Member], Checked(min_length=1)]


def selection_json(
    outcome: Outcome, candidates: CandidatePool, objective: str, origin: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a selection as plain JSON.

    Args:
        origin: what it was made from and how: `model`, `options`, `search_data`, `versions`.
    """
    from hydractl.tasks.all_tasks import find_task

    key = find_task(candidates.network.spec.task).key
    names = candidates.names
    return {
        "format": FORMAT,
        "version": VERSION,
        "objective": objective,
        "members": [_member(candidates, number) for number in outcome.curve.chosen],
        "trunk": outcome.trunk,
        "baseline": {**_numbers(outcome.baseline, key), "multiply_adds": candidates.cost([0])},
        "curve": [
            {"candidate": names[point.candidate], **_numbers(point.quality, key), "multiply_adds": point.multiply_adds}
            for point in outcome.curve.points
        ],
        "candidates": names,
        **origin,
    }


def _member(candidates: CandidatePool, number: int) -> dict[str, Any]:
    if number >= len(candidates.dropped):
        member = candidates.checkpoint(number)
        return {"candidate": candidates.names[number], "reference": member.name, "sha256": identity(member)}
    chosen = candidates.dropped[number]
    dropped = [head._asdict() for head in in_candidate_order(chosen.dropped)]
    return {"candidate": chosen.name, "dropped": dropped}


def _numbers(quality: Measure, key: str) -> dict[str, float]:
    return {key: quality.accuracy, "nll": quality.nll}


def read_selection(source: str) -> Selection:
    """Reads a selection from the file `source`, or from standard input for `-`.

    Raises:
        ArtifactError: not a selection, or a member that is neither heads to drop nor a file.
    """
    return follow_artifact(source, Selection, FORMAT, VERSION)
