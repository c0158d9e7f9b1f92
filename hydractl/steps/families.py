"""Listing the architectures that can be read, and those that are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hydractl.options import function
from hydractl.steps.result import Result
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.families import Family

#: A sentence on what the tests show.
VERIFIED = (
    "Each was verified against the forward pass of its own library (transformers, timm, open_clip), "
    "in float64 to 1e-10: dense, pruned, fused, searched, exported back."
)


@dataclass(frozen=True, eq=False, repr=False)
class Families(Result):
    """The families that are read, as plain JSON, and the reason for each that is refused."""

    families: Sequence[Mapping[str, Any]]
    refused: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {"families": list(self.families), "refused": dict(self.refused)}

    def lines(self) -> Iterator[str]:
        width = max(len(family["name"]) for family in self.families)
        for family in self.families:
            yield f"{family['name']:<{width}}  {family['task']:<20}  {', '.join(family['reads'])}"
        yield from ("", VERIFIED, "", "not read:")
        for name, reason in self.refused.items():
            yield f"  {name}: {reason}"

    def facts(self) -> Mapping[str, object]:
        return {family["name"]: ", ".join(family["reads"]) for family in self.families}


@dataclass(frozen=True)
class ListFamilies:
    """List the architectures that can be read.

    Prints how each was verified, and which are refused and why.

    Example: hydractl families

    >>> from hydractl.steps.families import families
    >>> families().refused["albert"]
    'its layers share one set of weights, so a head is dropped in all of them or in none'
    """

    def run(self, watch: Watcher) -> Families:
        from hydractl.families import FAMILIES, REFUSED

        listed = [
            {
                "name": family.name,
                "title": family.title,
                "task": family.task,
                "reads": list(family.architectures)
                if family.library == "transformers"
                else [f"{family.title} folders"],
                "verified_against": family.library,
            }
            for family in FAMILIES
        ]
        return Families(listed, {name: why for family in FAMILIES for name, why in family.refused.items()} | REFUSED)


families = function(ListFamilies)


def _reads(family: Family) -> list[str]:
    return list(family.architectures) if family.library == "transformers" else [f"{family.title} folders"]
