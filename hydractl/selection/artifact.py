"""Selections in their JSON form, `hydractl-selection`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.heads import in_candidate_order
from hydractl.selection.greedy import Quality
from hydractl.selection.run import Asked, Choice, Pool

FORMAT = "hydractl-selection"
VERSION = 1


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
        return {"candidate": member.name, "sha256": identity(member)}
    chosen = candidates.dropped[number]
    return {"candidate": chosen.name, "dropped": [head._asdict() for head in in_candidate_order(chosen.dropped)]}


def _numbers(quality: Quality) -> dict[str, float | None]:
    auroc = None if quality.auroc is None else float(quality.auroc)
    return {"accuracy": float(quality.accuracy), "auroc": auroc, "nll": quality.nll}
