"""What the result of fine-tuning depends on: neither an unfinished run nor a finished one is taken for another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.manifest import fingerprint
from hydractl.conditions import difference
from hydractl.errors import CheckpointError, OptionError
from hydractl.schema import Origin, Schema, document
from hydractl.training.data import Match, TrainingData, digest
from hydractl.training.ensembles import Ensemble
from hydractl.training.optimizer import step_count
from hydractl.training.order import Seeds
from hydractl.training.recipe import Recipe, to_json

Conditions = Mapping[str, Any]

REMEDY = "`resume` with what it was started with, or start over without `resume`"
SAID = (
    "steps",
    "seed",
    "order_seed",
    "noise_seed",
    "match_labels",
    "precision",
    "method",
)  # by a file's provenance in the same words
INPUTS = ("model", "training data", "validation data", "outliers", "teacher")


def training_conditions(
    checkpoint: Checkpoint,
    data: TrainingData,
    recipe: Recipe,
    seeds: Seeds,
    match: Match,
    ensemble: Ensemble | None,
    precision: str,
    teachers: Sequence[Checkpoint] = (),
) -> Conditions:
    """All that determines the result, in plain JSON; how a run is carried out (`Machine`) is no part of it.

    Args:
        checkpoint, data: as they are given, before labels and a classifier are made to fit.
    """
    return {
        **_numbers(to_json(recipe)),
        "steps": step_count(recipe, data.size),
        "seed": seeds.run,
        "order_seed": seeds.order,
        "noise_seed": seeds.noise,
        "match_labels": match,
        "precision": precision,
        "method": None if ensemble is None else asdict(ensemble),
        "model": fingerprint(checkpoint),
        "training data": digest(data.train),
        "validation data": None if data.validation is None else digest(data.validation),
        "outliers": None if data.outliers is None else digest(data.outliers),
        "teacher": [fingerprint(teacher) for teacher in teachers] or None,
    }


def as_provenance(conditions: Conditions, recipe: Recipe, lr: float) -> dict[str, Any]:
    """What a file says of them.

    Args:
        lr: the rate, of those of the recipe, whose weights the file holds.
    """
    return {
        "recipe": {**to_json(recipe), "lr": lr},
        "rates": list(recipe.lr),
        **{name: conditions[name] for name in SAID},
        "fingerprints": {name: conditions[name] for name in INPUTS},
    }


class Made(Schema):
    """What the provenance of a fine-tuned file says of its run."""

    model_config = ConfigDict(extra="ignore")

    recipe: dict[str, Any]
    rates: list[float]
    steps: int
    best_step: int
    seed: int
    order_seed: int
    noise_seed: int
    match_labels: str
    precision: str
    method: dict[str, Any] | None = None
    fingerprints: dict[str, Any]
    lr: Annotated[float, Field(gt=0)]

    @property
    def conditions(self) -> Conditions:
        """What determined it, as `training_conditions` has it."""
        said = {name: getattr(self, name) for name in SAID}
        return {**_numbers(self.recipe), "lr": self.rates, **said, **self.fingerprints}


def read_made(checkpoint: Checkpoint) -> Made:
    """What the provenance of a fine-tuned file says of its run.

    Raises:
        CheckpointError: it was not made by fine-tuning, or does not say how.
    """
    origin = Origin(checkpoint.name, CheckpointError, "name another output, or start over without `resume`")
    if checkpoint.provenance.get("command") != "finetune":
        raise origin.refusal("was not made by fine-tuning, so there is nothing to resume")
    said = document(checkpoint.provenance, origin).fields.get("options")
    options = said if isinstance(said, dict) else {}
    recipe = options.get("recipe")
    lr = recipe.get("lr") if isinstance(recipe, dict) else None
    return document({**options, "lr": lr}, origin).read(Made)


def refuse_other(place: Path, found: Conditions, wanted: Conditions) -> None:
    """Nothing, if what lies at a place was made under the conditions of this run.

    Raises:
        OptionError: the first difference is named.
    """
    if other := difference({name: found.get(name) for name in wanted}, wanted):
        raise OptionError(f"{place}: was made with {other}: {REMEDY}")


def _numbers(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe without the words that say where its numbers come from."""
    return {name: value for name, value in recipe.items() if name != "source"}
