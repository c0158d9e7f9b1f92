"""Scores of heads and MLP units in their JSON form, `hydractl-scores`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from hydractl.artifacts import Artifact, TowerName, artifact_in_memory, follow_artifact
from hydractl.checkpoint.heads import Head, KeptHeads, Piece, Unit, member_heads
from hydractl.checkpoint.spec import ModelSpec
from hydractl.errors import ArtifactError, OptionError
from hydractl.schema import Checked, Items

FORMAT = "hydractl-scores"
VERSION = 1
ScoresLike = Any  #: a path, a `ScoreTable`, or the result of scoring heads

#: By tower, [L][H] or [L][F]: a value per head or unit, None for one that was not there.
Towers = dict[TowerName, Items[Items[float | None]]]


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
            raise ArtifactError(f"{self.name}: scores a {absent[0]} tower, the model has none: is it the right model?")
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
    start = {"format": FORMAT, "version": VERSION, "method": method, "towers": as_towers(scores, spec)}
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
    return follow_artifact(source, ScoreTable, FORMAT, VERSION)


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
