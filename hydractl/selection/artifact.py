"""Selections in their JSON form, `hydractl-selection`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from hydractl.artifacts import (
    ArtifactFile,
    Index,
    ModelReference,
    TowerName,
    artifact_name,
    found_reference,
    read_artifact,
)
from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.heads import Head, in_candidate_order
from hydractl.errors import ArtifactError
from hydractl.schema import Items, Origin, Schema, document
from hydractl.selection.greedy import Quality
from hydractl.selection.run import Asked, Choice, Pool

FORMAT = "hydractl-selection"
VERSION = 1


@dataclass(frozen=True)
class Member:
    """A member that was chosen: the network less some heads, or a file of its own.

    Attributes:
        candidate: what the selection called it.
        dropped: the heads that the network loses; None for a file.
        file: where that lies and its identity; None for the network less some heads.
    """

    candidate: str
    dropped: frozenset[Head] | None
    file: ModelReference | None = None


@dataclass(frozen=True)
class Selection:
    """A selection as `fuse` and `prune` follow it.

    Attributes:
        model: the network that members are made of; None for a selection written by hand.
        options: those that determined it, for the history of what is made by it.
        search_data: fingerprints of the samples it was made on, which an evaluation then refuses.
    """

    name: str
    members: tuple[Member, ...]
    model: ModelReference | None
    options: Mapping[str, Any]
    search_data: Mapping[str, Any] | None


def selection_json(choice: Choice, candidates: Pool, asked: Asked, origin: Mapping[str, Any]) -> dict[str, Any]:
    """A selection as plain JSON.

    Args:
        origin: what it was made from and how: `model`, `options`, `search_data`, `versions`.
    """
    selection, names = choice.selection, candidates.names
    return {
        "format": FORMAT,
        "version": VERSION,
        "objective": asked.objective,
        "members": [_member(candidates, number) for number in selection.chosen],
        "trunk": choice.trunk,
        "baseline": {**_numbers(choice.baseline), "multiply_adds": candidates.cost([0])},
        "curve": [
            {"candidate": names[step.candidate], **_numbers(step.quality), "multiply_adds": step.multiply_adds}
            for step in selection.curve
        ],
        "candidates": names,
        **origin,
    }


def _member(candidates: Pool, number: int) -> dict[str, Any]:
    if number >= len(candidates.dropped):
        member = candidates.checkpoint(number)
        return {"candidate": member.name, "reference": member.name, "sha256": identity(member)}
    chosen = candidates.dropped[number]
    return {"candidate": chosen.name, "dropped": [head._asdict() for head in in_candidate_order(chosen.dropped)]}


def _numbers(quality: Quality) -> dict[str, float | None]:
    auroc = None if quality.auroc is None else float(quality.auroc)
    return {"accuracy": float(quality.accuracy), "auroc": auroc, "nll": quality.nll}


class _Head(Schema):
    model_config = ConfigDict(extra="ignore")

    tower: TowerName
    layer: Index
    head: Index


class _Member(Schema):
    model_config = ConfigDict(extra="ignore")

    candidate: str = ""
    dropped: Items[_Head] | None = None
    reference: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> _Member:
        named = self.reference is not None and self.sha256 is not None
        if named == (self.dropped is not None):
            raise ValueError("a member has either the heads that it drops or a file's reference and sha256")
        return self

    @property
    def value(self) -> Member:
        """The member."""
        if self.dropped is not None:
            return Member(self.candidate, frozenset(Head(head.tower, head.layer, head.head) for head in self.dropped))
        assert self.reference is not None and self.sha256 is not None
        return Member(self.candidate, None, ModelReference(self.reference, self.sha256))


class _SelectionFile(ArtifactFile):
    members: Annotated[Items[_Member], Field(min_length=1)]
    options: dict[str, Any] = Field(default_factory=dict)
    search_data: dict[str, Any] | None = None


def read_selection(source: str) -> Selection:
    """The selection in the file `source`, or on standard input where that is `-`.

    Its references come back as somebody in the current folder would give them.

    Raises:
        ArtifactError: not a selection, or a member that is neither heads to drop nor a file.
    """
    found = _selection(artifact_name(source), read_artifact(source, _SelectionFile, FORMAT, VERSION))
    return replace(found, members=tuple(_located(member, source) for member in found.members))


def selection_of(content: Mapping[str, Any]) -> Selection:
    """The selection that `selection_json` returned."""
    origin = Origin("the selection", ArtifactError, "make it again")
    return _selection(origin.name, document(dict(content), origin).read(_SelectionFile))


def _selection(name: str, file: _SelectionFile) -> Selection:
    return Selection(name, tuple(one.value for one in file.members), file.model, file.options, file.search_data)


def _located(member: Member, source: str) -> Member:
    if member.file is None:
        return member
    return replace(member, file=replace(member.file, reference=found_reference(member.file.reference, source)))
