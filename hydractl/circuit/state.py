"""What a search of circuits has found so far, on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from hydractl.artifacts import Index, State, StateFile, TowerName
from hydractl.checkpoint.heads import Head
from hydractl.circuit.objective import Measure, Objective
from hydractl.circuit.ranking import Ranking, Shortcut, Step
from hydractl.errors import OptionError
from hydractl.schema import Items, Schema

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


class _State(State):
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


class Journal(StateFile[_State, Sequence[Ranking]]):
    """A search's rankings so far."""

    FORMAT, VERSION, FILE = FORMAT, VERSION, _State

    def fields(self, found: Sequence[Ranking]) -> Mapping[str, Any]:
        return {"rankings": [_to_json(ranking) for ranking in found]}

    def found(self, state: _State) -> list[Ranking]:
        return [ranking.value for ranking in state.rankings]


def _to_json(ranking: Ranking) -> dict[str, Any]:
    return {
        "objective": ranking.objective,
        "baseline": list(ranking.baseline) if ranking.baseline else None,
        "steps": [[list(step.head), list(step.measure)] for step in ranking.steps],
        "shortcut": [cut.kind, cut.slack, cut.checked] if (cut := ranking.shortcut) else None,
    }
