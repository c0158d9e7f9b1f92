"""Refuses or marks an evaluation on samples that made one of its systems."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hydractl.cli.evaluation_systems import OpenSystem

if TYPE_CHECKING:
    from hydractl.evaluation.sets import EvaluationData


def watched(system: OpenSystem, data: EvaluationData) -> EvaluationData:
    """The data, whose streams refuse what the system was made with when they come to it."""
    from hydractl.evaluation.leakage import watch_streams

    return watch_streams(system.spec.name, [checkpoint.provenance for checkpoint in system.checkpoints], data)


def check_leaks(
    opened: Sequence[OpenSystem], data: EvaluationData | None, allowed: bool
) -> dict[str, Mapping[str, Any]]:
    """By system what its entry in the report says of leaks, nothing where there are none.

    Args:
        data: None where all systems are saved predictions, which say themselves what leaked when they were made.

    Raises:
        DataError: a set holds samples that a system was made with, and that is not allowed.
    """
    from hydractl.evaluation.leakage import find_leaks, refuse_leaks

    marks: dict[str, Mapping[str, Any]] = {}
    for name in dict.fromkeys(system.spec.name for system in opened):
        own = [system for system in opened if system.spec.name == name]
        provenances = [checkpoint.provenance for system in own for checkpoint in system.checkpoints]
        found = [] if data is None else find_leaks(name, provenances, data)
        if not allowed:
            refuse_leaks(found)
        # A warning of this weight is no note: --quiet does not keep it back.
        for leak in found:
            print(f"warning: {leak}: the numbers flatter it", file=sys.stderr)
        saved = [leak for system in own if system.saved for leak in system.saved.about.get("leaks", [])]
        listed = saved + [leak.to_json() for leak in found]
        marks[name] = {"leaks": listed} if listed else {}
    return marks
