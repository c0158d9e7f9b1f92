"""What a search has found so far, on disk after every step, so that a killed one goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydractl.artifacts import read_artifact
from hydractl.checkpoint.atomic import write_bytes
from hydractl.checkpoint.heads import Head
from hydractl.circuit.ranking import Ranking, Shortcut, Step
from hydractl.errors import ArtifactError, OutputError
from hydractl.scoring.objective import Measure, Objective

FORMAT = "hydractl-search-state"
VERSION = 1


@dataclass(frozen=True)
class Journal:
    """A file that holds a search's rankings so far, and everything that determines them as plain JSON."""

    path: Path
    conditions: Mapping[str, Any]

    def save(self, rankings: Sequence[Ranking]) -> None:
        """Writes the rankings down, atomically."""
        state = {
            "format": FORMAT,
            "version": VERSION,
            "conditions": self.conditions,
            "rankings": [_to_json(ranking) for ranking in rankings],
        }
        write_bytes(self.path, json.dumps(state).encode(), force=True)

    def read(self) -> list[Ranking]:
        """The rankings to go on from.

        Raises:
            ArtifactError: no such state, damaged, or of a search under other conditions; the first difference is named.
        """
        artifact = read_artifact(str(self.path), FORMAT, VERSION)
        wanted = json.loads(json.dumps(self.conditions))
        found = artifact.get("conditions", dict, "an object")
        for key in [*wanted, *found]:
            if wanted.get(key) != found.get(key):
                raise ArtifactError(
                    f"{self.path}: is of a search with another {key} ({_short(found.get(key))}, now "
                    f"{_short(wanted.get(key))}): give what it was started with, or start over with `force`"
                )
        try:
            return [_from_json(entry) for entry in artifact.get("rankings", list, "a list")]
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{self.path}: is damaged: remove it and start over") from error

    def begin(self, objectives: Sequence[Objective], resume: bool, force: bool) -> list[Ranking]:
        """The rankings to grow: those of an interrupted search, or empty ones where there is none.

        Raises:
            ArtifactError: see `read`.
            OutputError: an interrupted search that is neither gone on with nor given up.
        """
        if self.path.exists():
            if resume:
                return self.read()
            if not force:
                raise OutputError(
                    f"{self.path}: an interrupted search: go on with `resume`, or start over with `force`"
                )
        return [Ranking(objective) for objective in objectives]

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _to_json(ranking: Ranking) -> dict[str, Any]:
    return {
        "objective": ranking.objective,
        "baseline": list(ranking.baseline) if ranking.baseline else None,
        "steps": [[list(step.head), list(step.measure)] for step in ranking.steps],
        "shortcut": [cut.kind, cut.slack, cut.checked] if (cut := ranking.shortcut) else None,
    }


def _from_json(entry: Mapping[str, Any]) -> Ranking:
    baseline = Measure(*entry["baseline"]) if entry["baseline"] else None
    steps = tuple(Step(Head(*head), Measure(*measure)) for head, measure in entry["steps"])
    kind, slack, checked = entry.get("shortcut") or (None, 0, ())
    shortcut = Shortcut(kind, slack, tuple(checked)) if kind else None
    return Ranking(entry["objective"], baseline, steps, shortcut)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 24 else text[:21] + "..."
