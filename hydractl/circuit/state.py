"""What a search has found so far, on disk after every step, so that a killed one goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from hydractl.artifacts import ArtifactFile, Index, TowerName, read_artifact
from hydractl.checkpoint.atomic import write_bytes
from hydractl.checkpoint.heads import Head
from hydractl.circuit.ranking import Ranking, Shortcut, Step
from hydractl.conditions import difference
from hydractl.errors import ArtifactError, OptionError, OutputError
from hydractl.schema import Items, Origin, Schema
from hydractl.scoring.objective import Measure, Objective

PLACEHOLDER = "{objective}"
FORMAT = "hydractl-search-state"
VERSION = 1


def _possible(measure: Measure) -> Measure:
    if not 0 <= measure.correct <= measure.id_samples or measure.id_samples < 1 or measure.ood_samples < 0:
        raise ValueError(f"{measure.correct} correct of {measure.id_samples} samples cannot be")
    return measure


_Measure = Annotated[Measure, AfterValidator(_possible)]


class _Ranking(Schema):
    """A ranking as JSON: heads, measures and the shortcut as lists of their fields."""

    objective: Objective
    baseline: _Measure | None
    steps: Items[tuple[tuple[TowerName, Index, Index], _Measure]]
    shortcut: tuple[str, int, Items[int]] | None = None

    @property
    def value(self) -> Ranking:
        """The ranking."""
        steps = tuple(Step(Head(*head), measure) for head, measure in self.steps)
        return Ranking(self.objective, self.baseline, steps, Shortcut(*self.shortcut) if self.shortcut else None)


class _State(ArtifactFile):
    conditions: dict[str, Any]
    rankings: Items[_Ranking]


def circuit_files(output: Path, objectives: Sequence[Objective]) -> dict[Objective, Path]:
    """Where the circuit of each objective goes: `{objective}` in the name stands for it.

    Raises:
        OptionError: several circuits would go to one file.
    """
    if len(objectives) > 1 and PLACEHOLDER not in output.name:
        names = ",".join(objectives)
        raise OptionError(f"`objective` {names} makes {len(objectives)} files: put {PLACEHOLDER} into `output`")
    return {name: output.with_name(output.name.replace(PLACEHOLDER, name)) for name in objectives}


def state_file(output: Path, objectives: Sequence[Objective]) -> Path:
    """Where a search keeps its state: beside its circuits."""
    return output.with_name(output.name.replace(PLACEHOLDER, "-".join(objectives)) + ".state")


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
        state = read_artifact(str(self.path), _State, FORMAT, VERSION)
        if other := difference(state.conditions, self.conditions):
            origin = Origin(str(self.path), ArtifactError, "give what it was started with, or start over with `force`")
            raise origin.refusal(f"is of a search with {other}")
        return [ranking.value for ranking in state.rankings]

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
