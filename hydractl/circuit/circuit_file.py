"""Circuits in their JSON form, `hydractl-circuit`, and the state of a search on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from hydractl.artifacts import (
    ArtifactFile,
    Index,
    ModelReference,
    State,
    StateFile,
    TowerName,
    artifact_name,
    read_artifact,
)
from hydractl.checkpoint.heads import Head
from hydractl.circuit.objective import Measure, Objective
from hydractl.circuit.ranking import DroppedHead, Ranking, Restriction, Shortcut
from hydractl.errors import OptionError
from hydractl.schema import Items, Schema

FORMAT = "hydractl-circuit"
VERSION = 1


@dataclass(frozen=True)
class Circuit:
    """A ranking of heads, first dropped first.

    `objective` and `model` are None for a circuit written by hand; `search_data` fingerprints the samples it was
    chosen on, which an evaluation then refuses; `restriction` names the heads that were chosen from.
    """

    name: str
    ranking: tuple[Head, ...]
    objective: str | None
    model: ModelReference | None
    search_data: Mapping[str, Any] | None
    restriction: Restriction = field(default_factory=Restriction)


def circuit_json(ranking: Ranking, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a ranking as plain JSON.

    Args:
        origin: what it was made from and how: `model`, `options`, `search_data`, `versions`.
    """
    assert ranking.baseline is not None
    shortcut = ranking.shortcut
    account = {"search": {shortcut.kind: ranking.slack, "checked": list(shortcut.checked)}} if shortcut else {}
    steps = [
        {**step.head._asdict(), "score": step.measure.score(ranking.objective), **_numbers(step.measure)}
        for step in ranking.steps
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "objective": ranking.objective,
        "baseline": _numbers(ranking.baseline),
        "steps": steps,
        **account,
        **origin,
    }


def circuit_of(ranking: Ranking, origin: Mapping[str, Any]) -> Circuit:
    """Returns the circuit that `circuit_json` writes, as `read_circuit` reads it."""
    options = origin.get("options", {})
    return Circuit(
        f"the {ranking.objective} circuit of {origin['model']['reference']}",
        tuple(step.head for step in ranking.steps),
        ranking.objective,
        model=ModelReference(**origin["model"]),
        search_data=origin.get("search_data"),
        restriction=Restriction(options.get("towers"), options.get("layers")),
    )


def _numbers(measure: Measure) -> dict[str, float]:
    detected = {} if measure.auroc is None else {"auroc": measure.auroc}
    return {"accuracy": measure.accuracy, **detected, "nll": measure.nll}


class _Step(Schema):
    model_config = ConfigDict(extra="ignore")

    tower: TowerName
    layer: Index
    head: Index


def _each_once(steps: tuple[_Step, ...]) -> tuple[_Step, ...]:
    seen: set[_Step] = set()
    for number, step in enumerate(steps):
        if step in seen:
            raise ValueError(f"step {number} drops {_head(step)} a second time")
        seen.add(step)
    return steps


class _Restriction(Schema):
    model_config = ConfigDict(extra="ignore")

    towers: Annotated[str, Field(max_length=100)] | None = None
    layers: Annotated[str, Field(max_length=20)] | None = None


class _CircuitFile(ArtifactFile):
    objective: Objective | None = None
    steps: Annotated[Items[_Step], AfterValidator(_each_once)]
    search_data: dict[str, Any] | None = None
    options: _Restriction = _Restriction()


def read_circuit(source: str) -> Circuit:
    """Returns the circuit in the file `source`, or on standard input where that is `-`.

    Raises:
        ArtifactError: not a circuit, an unknown objective, a malformed step, a head that is dropped twice.
    """
    found = read_artifact(source, _CircuitFile, FORMAT, VERSION)
    return Circuit(
        artifact_name(source),
        tuple(map(_head, found.steps)),
        found.objective,
        model=found.model,
        search_data=found.search_data,
        restriction=Restriction(found.options.towers, found.options.layers),
    )


def _head(step: _Step) -> Head:
    return Head(step.tower, step.layer, step.head)


PLACEHOLDER = "{objective}"


class _Ranking(Schema):
    """A ranking as JSON: heads, measures and the shortcut as lists of their fields."""

    objective: Objective
    baseline: Measure | None
    steps: Items[tuple[tuple[TowerName, Index, Index], Measure]]
    shortcut: tuple[str, int, Items[int]] | None = None

    @property
    def value(self) -> Ranking:
        """The ranking."""
        steps = tuple(DroppedHead(Head(*head), measure) for head, measure in self.steps)
        return Ranking(self.objective, self.baseline, steps, Shortcut(*self.shortcut) if self.shortcut else None)


class _SearchState(State):
    rankings: Items[_Ranking]


def circuit_files(output: Path, objectives: Sequence[Objective]) -> dict[Objective, Path]:
    """Returns the file of each objective's circuit; `{objective}` in the name stands for the objective.

    Raises:
        OptionError: several circuits would go to one file.
    """
    if len(objectives) > 1 and PLACEHOLDER not in output.name:
        names = ",".join(objectives)
        raise OptionError(f"`objective` {names} makes {len(objectives)} files: put {PLACEHOLDER} into `output`")
    return {name: output.with_name(output.name.replace(PLACEHOLDER, name)) for name in objectives}


def state_file(output: Path, objectives: Sequence[Objective]) -> Path:
    """Returns the file of a search's state, beside its circuits."""
    return output.with_name(output.name.replace(PLACEHOLDER, "-".join(objectives)) + ".state")


class SearchJournal(StateFile[_SearchState, Sequence[Ranking]]):
    """A search's rankings so far."""

    FORMAT, VERSION, FILE = "hydractl-search-state", 1, _SearchState

    def fields(self, found: Sequence[Ranking]) -> Mapping[str, Any]:
        return {"rankings": [vars(ranking) for ranking in found]}

    def found(self, state: _SearchState) -> list[Ranking]:
        return [ranking.value for ranking in state.rankings]
