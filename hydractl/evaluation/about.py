"""What a folder of saved predictions says of itself: classes, temperature, cost, and what computed them."""

from __future__ import annotations

from dataclasses import astuple
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from hydractl.artifacts import ArtifactFile, Size, TowerName, found_reference, read_artifact
from hydractl.evaluation.cost import Cost
from hydractl.schema import Items, Schema

FORMAT = "hydractl-predictions"
VERSION = 1

Count = Annotated[int, Field(ge=0)]


class _Heads(Schema):
    of: Size
    kept: Items[Items[Items[int]]]

    @model_validator(mode="after")
    def _is_of_as_many_members_everywhere(self) -> Self:
        if len({len(members) for members in self.kept}) > 1:
            raise ValueError("layers differ in how many members they have")
        return self


class Network(Schema):
    """One of the networks of a system, and the heads it keeps."""

    model_config = ConfigDict(extra="ignore")

    reference: str
    sha256: str
    heads: dict[TowerName, _Heads]


class KnownLeak(Schema):
    """A leak as an artifact tells of it; see `Leak`."""

    model_config = ConfigDict(extra="ignore")

    set: str
    name: str
    samples: Count
    overlap: Count
    used_as: Items[str]


def _possible(cost: Cost) -> Cost:
    if min(astuple(cost)) < 1:
        raise ValueError("every count should be at least 1")
    return cost


class About(ArtifactFile):
    """What such a folder says of itself; one made elsewhere need say nothing."""

    format: str = FORMAT
    version: int = VERSION
    id_name: Annotated[str, Field(min_length=1)] = "id"
    labels: Items[str] | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    cost: Annotated[Cost, AfterValidator(_possible)] | None = None
    networks: Items[Network] = ()
    leaks: Items[KnownLeak] = ()

    def plain(self, part: Literal["networks", "leaks"]) -> list[dict[str, Any]]:
        """Its networks or leaks as the entry of a report has them."""
        listed: list[dict[str, Any]] = self.model_dump(mode="json")[part]
        return listed


def read_about(source: str) -> About:
    """What the file of that name says, the networks as somebody in the current folder would name them.

    Raises:
        ArtifactError: it is damaged, or of another format or version.
    """
    about = read_artifact(source, About, FORMAT, VERSION)
    networks = (
        each.model_copy(update={"reference": found_reference(each.reference, source)}) for each in about.networks
    )
    return about.model_copy(update={"networks": tuple(networks)})
