"""Circuits in their JSON form, `hydractl-circuit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from hydractl.artifacts import ArtifactFile, Index, ModelReference, TowerName, artifact_name, read_artifact
from hydractl.checkpoint.heads import Head
from hydractl.circuit.objective import Measure, Objective
from hydractl.circuit.ranking import Ranking, Shortcut
from hydractl.circuit.restriction import Restriction
from hydractl.errors import OptionError
from hydractl.schema import Items, Schema

FORMAT = "hydractl-circuit"
VERSION = 1


@dataclass(frozen=True)
class Circuit:
    """A ranking of heads, first dropped first.

    `objective` and `model` are None for a circuit written by hand; `search_data` fingerprints the samples it was
    chosen on, which an evaluation then refuses; `restriction` says what heads were chosen from.
    """

    name: str
    ranking: tuple[Head, ...]
    objective: str | None
    model: ModelReference | None
    search_data: Mapping[str, Any] | None
    restriction: Restriction = field(default_factory=Restriction)


def circuit_json(ranking: Ranking, origin: Mapping[str, Any]) -> dict[str, Any]:
    """A ranking as plain JSON.

    Args:
        origin: what it was made from and how: `model`, `options`, `search_data`, `versions`.
    """
    assert ranking.baseline is not None
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
        **({"search": _account(ranking, ranking.shortcut)} if ranking.shortcut else {}),
        **origin,
    }


def circuit_of(ranking: Ranking, origin: Mapping[str, Any]) -> Circuit:
    """The circuit that `circuit_json` writes, as `read_circuit` reads it."""
    model, options = origin["model"], origin["options"]
    return Circuit(
        f"the {ranking.objective} circuit of {model['reference']}",
        tuple(step.head for step in ranking.steps),
        ranking.objective,
        ModelReference(model["reference"], model["sha256"], {name: (n, h) for name, (n, h) in model["towers"].items()}),
        origin["search_data"],
        Restriction(options.get("towers"), options.get("layers")),
    )


def _account(ranking: Ranking, shortcut: Shortcut) -> dict[str, Any]:
    return {shortcut.kind: ranking.slack, "checked": list(shortcut.checked)}


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


def _is_range(options: _Restriction) -> _Restriction:
    try:
        Restriction(options.towers, options.layers).among(())
    except OptionError as error:
        raise ValueError(str(error)) from error
    return options


class _CircuitFile(ArtifactFile):
    objective: Objective | None = None
    steps: Annotated[Items[_Step], AfterValidator(_each_once)]
    search_data: dict[str, Any] | None = None
    options: Annotated[_Restriction, AfterValidator(_is_range)] = _Restriction()


def read_circuit(source: str) -> Circuit:
    """The circuit in the file `source`, or on standard input where that is `-`.

    Raises:
        ArtifactError: not a circuit, an unknown objective, a malformed step, a head that is dropped twice.
    """
    found = read_artifact(source, _CircuitFile, FORMAT, VERSION)
    return Circuit(
        artifact_name(source),
        tuple(map(_head, found.steps)),
        found.objective,
        found.model,
        found.search_data,
        Restriction(found.options.towers, found.options.layers),
    )


def _head(step: _Step) -> Head:
    return Head(step.tower, step.layer, step.head)
