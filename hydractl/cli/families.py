"""`hydractl families`."""

from __future__ import annotations

from typing import Any

from hydractl.cli import console
from hydractl.cli.options import Json


def families(json: Json = False) -> None:
    """List the architectures that can be read, how each was verified, and which are refused and why.

    Example: hydractl families
    """
    listed, refused = _listed(), _refused()
    if json:
        return console.print_json({"families": listed, "refused": refused})
    width = max(len(family["name"]) for family in listed)
    for family in listed:
        print(f"{family['name']:<{width}}  {family['task']:<20}  {', '.join(family['reads'])}")
    print(f"\n{VERIFIED}")
    print("\nnot read:")
    for name, reason in refused.items():
        print(f"  {name}: {reason}")
    return None


#: What the tests show of each family, in one sentence.
VERIFIED = (
    "Each was verified against the forward pass of its own library (transformers, timm, open_clip), "
    "in float64 to 1e-10: dense, pruned, fused, searched, exported back."
)


def _listed() -> list[dict[str, Any]]:
    from hydractl.families import FAMILIES

    return [
        {
            "name": family.name,
            "title": family.title,
            "task": family.task,
            "reads": list(family.architectures) if family.library == "transformers" else [f"{family.title} folders"],
            "verified_against": family.library,
        }
        for family in FAMILIES
    ]


def _refused() -> dict[str, str]:
    from hydractl.families import FAMILIES
    from hydractl.families.refused import REFUSED

    return {name: why for family in FAMILIES for name, why in family.refused.items()} | REFUSED
