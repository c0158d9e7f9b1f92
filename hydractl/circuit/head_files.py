"""Scores of heads and units (`hydractl-scores`), circuits (`hydractl-circuit`), and the state of a search on disk."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from hydractl.artifacts import (
    Artifact,
    ListedHead,
    NamedHead,
    ReadAs,
    State,
    StateFile,
    TowerName,
    artifact_in_memory,
    follow_artifact,
)
from hydractl.checkpoint.heads import Head, KeptHeads, Piece, Unit, member_heads
from hydractl.checkpoint.spec import ModelSpec
from hydractl.circuit.objective import Measure, Objective
from hydractl.circuit.ranking import DroppedHead, Ranking, Restriction
from hydractl.errors import ArtifactError, OptionError
from hydractl.schema import Checked, Items, Schema

SCORES_FORMAT = "hydractl-scores"
ScoresLike = Any  #: a path, a `ScoreTable`, or the result of scoring heads
#: By tower, [L][H] or [L][F]: a value per head or unit, None for one that was not there.
Towers = dict[TowerName, Items[Items[float | None]]]
CIRCUIT_FORMAT = "hydractl-circuit"
CircuitLike = Any  #: a path, a `Circuit`, or the result of a search for one circuit
PLACEHOLDER = "{objective}"


class ScoreTable(Artifact):
    """A score per head of each tower that was scored, and perhaps per MLP unit; higher = keep.

    `method` is None for scores written by hand.
    """

    method: str | None = None
    towers: Annotated[Towers, Checked(min_length=1)]
    units: Towers = field(default_factory=dict)

    def of_heads(self, kept: KeptHeads) -> dict[Head, float]:
        """Returns the score of every head that the first member of a model keeps in the towers scored.

        Raises:
            ArtifactError: the model lacks such a tower, or a head has no score.
        """
        if absent := [tower for tower in self.towers if tower not in kept]:
            raise ArtifactError(
                f"{self.name}: scores a {absent[0]} tower, which the model does not have: is it the right model?"
            )
        return self._found(self.known(), (head for head in member_heads(kept, 0) if head.tower in self.towers))

    def of_units(self, units: Iterable[Unit]) -> dict[Unit, float]:
        """Returns the score of each of some units.

        Raises:
            ArtifactError: one has none.
        """
        return self._found(dict(_pieces(Unit, self.units)), units)

    def known(self) -> dict[Head, float]:
        """Returns the score of every head that was there."""
        return dict(_pieces(Head, self.towers))

    def _found(self, scores: Mapping[Piece, float], pieces: Iterable[Piece]) -> dict[Piece, float]:
        chosen = {}
        for piece in pieces:
            if piece not in scores:
                advice = "score the heads of this model" + ("" if isinstance(piece, Head) else " with `units`")
                raise ArtifactError(f"{self.name}: has no score of {piece}: {advice}")
            chosen[piece] = scores[piece]
        return chosen


def _pieces(kind: type[Piece], towers: Towers) -> Iterator[tuple[Piece, float]]:
    for tower, rows in towers.items():
        for layer, row in enumerate(rows):
            yield from ((kind(tower, layer, n), value) for n, value in enumerate(row) if value is not None)


def scores_json(
    scores: Mapping[Head, float], units: Mapping[Unit, float], spec: ModelSpec, method: str, origin: Mapping[str, Any]
) -> dict[str, Any]:
    """Scores as plain JSON; a head or unit that is gone already has none.

    Args:
        units: empty if units were not scored.
        origin: what they were made from and how: `model`, `options`, `search_data`, `versions`.
    """
    more = {"units": as_towers(units, spec)} if units else {}
    start = {"format": SCORES_FORMAT, "version": 1, "method": method, "towers": as_towers(scores, spec)}
    return {**start, **more, **origin}


def as_towers(values: Mapping[Piece, float], spec: ModelSpec) -> dict[str, list[list[float | None]]]:
    """Returns a value per head or unit, [L][H] or [L][F] for each tower that has any; None for one not there."""
    by_place, names = {piece[:3]: value for piece, value in values.items()}, {piece.tower for piece in values}
    units = any(isinstance(piece, Unit) for piece in values)
    return {
        tower.name: [
            [by_place.get((tower.name, layer, n)) for n in range(tower.mlp_width if units else tower.heads)]
            for layer in range(tower.layers)
        ]
        for tower in spec.towers
        if tower.name in names
    }


def scores_of(artifact: Mapping[str, Any]) -> ScoreTable:
    """Returns the scores in the result of `scores_json`, as `read_scores` does for a file."""
    name = f"the {artifact['method']} scores of {artifact['model']['reference']}"
    return artifact_in_memory(artifact, ScoreTable, name)


def read_scores(source: str) -> ScoreTable:
    """Returns the scores in the file `source`, or on standard input where that is `-`.

    Raises:
        ArtifactError: not scores, an unknown tower, or an entry that is no finite number.
    """
    return follow_artifact(source, ScoreTable, SCORES_FORMAT, 1)


def as_scores(scores: ScoresLike) -> ScoreTable:
    """Returns head scores from their file (`-` is standard input), or from the step that computed them.

    Raises:
        ArtifactError: the file cannot be read, or holds no scores.
        OptionError: not head scores.
    """
    opened = read_scores(str(scores)) if isinstance(scores, str | Path) else getattr(scores, "scores", scores)
    if not isinstance(opened, ScoreTable):
        kind = type(opened).__name__
        raise OptionError(f"expected head scores (a path, or the result of score_heads), got {kind}")
    return opened


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
    steps = [
        {**step.head._asdict(), "score": step.measure.score(ranking.objective), **_numbers(step.measure, key)}
        for step in ranking.steps
    ]
    return {
        "format": CIRCUIT_FORMAT,
        "version": 1,
        "objective": ranking.objective,
        "baseline": _numbers(ranking.baseline, key),
        "steps": steps,
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
    return follow_artifact(source, Circuit, CIRCUIT_FORMAT, 1)


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


class _Ranking(Schema):
    """A ranking as JSON: heads and measures as lists of their fields."""

    objective: Objective
    baseline: Measure | None
    steps: Items[tuple[ListedHead, Measure]]

    def value(self) -> Ranking:
        """Returns the ranking."""
        steps = tuple(DroppedHead(*step) for step in self.steps)
        return Ranking(self.objective, self.baseline, steps)


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
