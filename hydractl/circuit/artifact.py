"""Circuits in their JSON form, `hydractl-circuit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hydractl.artifacts import Artifact, ModelReference, read_artifact
from hydractl.checkpoint.heads import TOWERS, Head
from hydractl.circuit.ranking import Ranking, Shortcut
from hydractl.circuit.restriction import Restriction
from hydractl.errors import ArtifactError, OptionError
from hydractl.scoring.objective import OBJECTIVES, Measure

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
    return {"accuracy": measure.accuracy, "auroc": measure.auroc, "nll": measure.nll}


def read_circuit(source: str) -> Circuit:
    """The circuit in the file `source`, or on standard input where that is `-`.

    Raises:
        ArtifactError: not a circuit, an unknown objective, a malformed step, a head that is dropped twice.
    """
    artifact = read_artifact(source, FORMAT, VERSION)
    steps = artifact.get("steps", list, "a list of steps")
    ranking = tuple(_head(artifact.name, number, step) for number, step in enumerate(steps))
    seen: set[Head] = set()
    for number, head in enumerate(ranking):
        if head in seen:
            raise ArtifactError(f"{artifact.name}: step {number} drops {head} a second time: write the file again")
        seen.add(head)
    return Circuit(
        artifact.name,
        ranking,
        _objective(artifact),
        artifact.model,
        artifact.optional("search_data", dict, "an object"),
        _restriction(artifact),
    )


def _restriction(artifact: Artifact) -> Restriction:
    options = Artifact(f"{artifact.name}: options", artifact.optional("options", dict, "an object") or {}, None)
    towers, layers = options.optional("towers", str, "names"), options.optional("layers", str, "a range such as 0-5")
    try:
        Restriction(towers, layers).among(())
    except OptionError as error:
        raise ArtifactError(f"{options.name}: {error}") from error
    return Restriction(towers, layers)


def _objective(artifact: Artifact) -> str | None:
    objective: str | None = artifact.optional("objective", str, f"one of {', '.join(OBJECTIVES)}")
    if objective is not None and objective not in OBJECTIVES:
        raise ArtifactError(f"{artifact.name}: objective is {objective!r}, expected one of {', '.join(OBJECTIVES)}")
    return objective


def _head(name: str, number: int, step: object) -> Head:
    if not isinstance(step, dict) or step.get("tower") not in TOWERS:
        raise ArtifactError(f"{name}: step {number} names no tower: it needs 'tower' (vision or text)")
    for key in ("layer", "head"):
        # A bool is an int to Python, and `true` is no layer.
        if type(step.get(key)) is not int or step[key] < 0:
            raise ArtifactError(f"{name}: step {number}: {key!r} is {step.get(key)!r}, expected a number from 0 on")
    return Head(step["tower"], step["layer"], step["head"])
