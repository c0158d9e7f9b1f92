"""Circuits in their JSON form, `hydractl-circuit`, and the state of a search on disk."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from hydractl.artifacts import (
    Artifact,
    ListedHead,
    NamedHead,
    ReadAs,
    State,
    StateFile,
    artifact_in_memory,
    follow_artifact,
)
from hydractl.checkpoint.heads import Head
from hydractl.circuit.objective import Measure, Objective
from hydractl.circuit.ranking import DroppedHead, Ranking, Restriction, Shortcut
from hydractl.errors import OptionError
from hydractl.schema import Checked, Items, Schema

FORMAT = "hydractl-circuit"
VERSION = 1
CircuitLike = Any  #: a path, a `Circuit`, or the result of a search for one circuit


def _each_once(heads: tuple[Head, ...]) -> tuple[Head, ...]:
    seen: set[Head] = set()
    for number, head in enumerate(heads):
        if head in seen:
            raise ValueError(f"step {number} drops {head} a second time")
        seen.add(head)
    return heads


class Circuit(Artifact, keys={"ranking": "steps", "restriction": "options"}):
    """A ranking of heads, first dropped first; `restriction` says which heads were chosen from."""

    objective: Objective | None = None
    ranking: Annotated[Items[NamedHead], Checked(_each_once)]
    restriction: Restriction = Restriction()


def circuit_json(ranking: Ranking, origin: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Returns a ranking as plain JSON.

    Args:
        key: see `Task.key`.
        origin: what it was made from and how: `model`, `options`, `search_data`, `versions`.
    """
    assert ranking.baseline is not None
    shortcut = ranking.shortcut
    account = {"search": {"gap": ranking.gap, "checked": list(shortcut.checked)}} if shortcut else {}
    steps = [
        {**step.head._asdict(), "score": step.measure.score(ranking.objective), **_numbers(step.measure, key)}
        for step in ranking.steps
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "objective": ranking.objective,
        "baseline": _numbers(ranking.baseline, key),
        "steps": steps,
        **account,
        **origin,
    }


def circuit_of(ranking: Ranking, origin: Mapping[str, Any], key: str) -> Circuit:
    """Returns the circuit that `circuit_json` writes, as `read_circuit` reads it."""
    name = f"the {ranking.objective} circuit of {origin['model']['reference']}"
    return artifact_in_memory(circuit_json(ranking, origin, key), Circuit, name)


def _numbers(measure: Measure, key: str) -> dict[str, float]:
    detected = {} if measure.auroc is None else {"auroc": measure.auroc}
    return {key: measure.accuracy, **detected, "nll": measure.nll}


def read_circuit(source: str) -> Circuit:
    """Returns the circuit in the file `source`, or on standard input where that is `-`.

    Raises:
        ArtifactError: not a circuit, an unknown objective, a malformed step, a head that is dropped twice.
    """
    return follow_artifact(source, Circuit, FORMAT, VERSION)


def as_circuit(circuit: CircuitLike) -> Circuit:
    """Returns a circuit from its file (`-` is standard input), or from the search that found it.

    Raises:
        ArtifactError: the file cannot be read, or is no circuit.
        OptionError: not a circuit.
    """
    opened = read_circuit(str(circuit)) if isinstance(circuit, str | Path) else getattr(circuit, "circuit", circuit)
    if not isinstance(opened, Circuit):
        raise OptionError(f"expected a circuit (a path, or the result of extract_circuit), got {type(opened).__name__}")
    return opened


PLACEHOLDER = "{objective}"


class _Ranking(Schema):
    """A ranking as JSON: heads, measures and the shortcut as lists of their fields."""

    objective: Objective
    baseline: Measure | None
    steps: Items[tuple[ListedHead, Measure]]
    shortcut: tuple[int, Items[int]] | None = None

    def value(self) -> Ranking:
        """Returns the ranking."""
        steps = tuple(DroppedHead(*step) for step in self.steps)
        return Ranking(self.objective, self.baseline, steps, Shortcut(*self.shortcut) if self.shortcut else None)


class _SearchState(State, keys={"findings": "rankings"}):
    findings: Items[Annotated[Ranking, ReadAs(_Ranking, _Ranking.value)]]


class SearchJournal(StateFile[Sequence[Ranking]]):
    """A search's rankings so far, on disk."""

    FORMAT, FILE = "hydractl-search-state", _SearchState


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
