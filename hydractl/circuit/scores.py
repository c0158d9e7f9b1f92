"""Head scores in their JSON form, `hydractl-scores`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from hydractl.artifacts import REMEDY, ArtifactFile, ModelReference, TowerName, artifact_name, read_artifact
from hydractl.checkpoint.heads import Head, KeptHeads, member_heads
from hydractl.checkpoint.spec import ModelSpec
from hydractl.errors import ArtifactError
from hydractl.schema import Items, Origin, document

FORMAT = "hydractl-scores"
VERSION = 1


@dataclass(frozen=True)
class ScoreTable:
    """A score per head, [L][H] for each tower that was scored, higher = keep; None for a head that was not there.

    `method` and `model` are None for scores written by hand; `search_data` fingerprints the samples they were
    computed on, which an evaluation then refuses.
    """

    name: str
    towers: Mapping[str, tuple[tuple[float | None, ...], ...]]
    method: str | None
    model: ModelReference | None
    search_data: Mapping[str, Any] | None

    def of_heads(self, kept: KeptHeads) -> dict[Head, float]:
        """Returns the score of every head that the first member of a model keeps in the towers scored.

        Raises:
            ArtifactError: the model lacks such a tower, or a head has no score.
        """
        known = self.known()
        if absent := [tower for tower in self.towers if tower not in kept]:
            raise ArtifactError(f"{self.name}: scores a {absent[0]} tower, the model has none: is it the right model?")
        heads = [head for head in member_heads(kept, 0) if head.tower in self.towers]
        if missing := [head for head in heads if head not in known]:
            raise ArtifactError(f"{self.name}: has no score of {missing[0]}: score the heads of this model")
        return {head: known[head] for head in heads}

    def known(self) -> dict[Head, float]:
        """Returns the score of every head that was there."""
        return {
            Head(tower, layer, head): value
            for tower, rows in self.towers.items()
            for layer, row in enumerate(rows)
            for head, value in enumerate(row)
            if value is not None
        }


def scores_json(
    scores: Mapping[Head, float], spec: ModelSpec, method: str, origin: Mapping[str, Any]
) -> dict[str, Any]:
    """Head scores as plain JSON; a head that is gone already has none.

    Args:
        origin: what they were made from and how: `model`, `options`, `search_data`, `versions`.
    """
    return {"format": FORMAT, "version": VERSION, "method": method, "towers": as_towers(scores, spec), **origin}


def as_towers(values: Mapping[Head, float], spec: ModelSpec) -> dict[str, list[list[float | None]]]:
    """Returns a value per head, [L][H] for each tower that has any; None for a head that is not there."""
    names = {head.tower for head in values}
    return {
        tower.name: [
            [values.get(Head(tower.name, layer, head)) for head in range(tower.heads)] for layer in range(tower.layers)
        ]
        for tower in spec.towers
        if tower.name in names
    }


def scores_of(artifact: Mapping[str, Any]) -> ScoreTable:
    """Returns the scores in the result of `scores_json`, as `read_scores` does for a file."""
    name = f"the {artifact['method']} scores of {artifact['model']['reference']}"
    return _scores(name, document(dict(artifact), Origin(name, ArtifactError, REMEDY)).read(_ScoresFile))


class _ScoresFile(ArtifactFile):
    method: str | None = None
    towers: Annotated[dict[TowerName, Items[Items[float | None]]], Field(min_length=1)]
    search_data: dict[str, Any] | None = None


def read_scores(source: str) -> ScoreTable:
    """Returns the scores in the file `source`, or on standard input where that is `-`.

    Raises:
        ArtifactError: not scores, an unknown tower, or an entry that is no finite number.
    """
    return _scores(artifact_name(source), read_artifact(source, _ScoresFile, FORMAT, VERSION))


def _scores(name: str, found: _ScoresFile) -> ScoreTable:
    return ScoreTable(name, found.towers, found.method, model=found.model, search_data=found.search_data)
