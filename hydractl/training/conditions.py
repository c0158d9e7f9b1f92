"""The conditions that determine the result of fine-tuning; a run resumes only under the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydractl.checkpoint import output
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.manifest import fingerprint
from hydractl.errors import OptionError
from hydractl.schema import Origin
from hydractl.training.ensembles import Ensemble
from hydractl.training.losses import Teachers
from hydractl.training.optimizer import step_count
from hydractl.training.recipe import Recipe, recipe_json
from hydractl.training.request import Seeds
from hydractl.training.trainset import Match, TrainingData, digest

Conditions = Mapping[str, Any]

REMEDY = "`resume` with what it was started with, or start over without `resume`"
#: Conditions that provenance holds in the same words.
WORDED = ("steps", "seed", "order_seed", "noise_seed", "match_labels", "precision", "method")
INPUTS = ("model", "training data", "validation data", "outliers", "teacher")


@dataclass(frozen=True, eq=False)
class Training:
    """A recipe, data and seeds; with the network and a precision they determine the result."""

    # With labels by the model's names, or by index as `match` says; any labels if the recipe asks for a new classifier.
    data: TrainingData
    recipe: Recipe = Recipe()
    seeds: Seeds = Seeds()
    match: Match = "name"
    ensemble: Ensemble | None = None  # what to make of the one network instead of training it as it is
    # Whose probabilities the network learns; if they have all the weight, labels are not read.
    teachers: Teachers | None = None

    def __post_init__(self) -> None:
        step_count(self.recipe, len(self.data.train))
        if len(self.recipe.lr) > 1 and self.data.validation is None:
            raise OptionError(
                f"{len(self.recipe.lr)} learning rates to choose from, but no validation data: "
                "pass `val_data` or `val_split`, or one rate (`settings` lr=...)"
            )

    @property
    def steps(self) -> int:
        """The number of optimiser steps."""
        return step_count(self.recipe, len(self.data.train))


def training_conditions(checkpoint: Checkpoint, training: Training, precision: str) -> Conditions:
    """Returns all that determines the result, in plain JSON.

    Args:
        checkpoint, training: as they are given, before labels and a classifier are made to fit.
    """
    data, seeds = training.data, training.seeds
    teachers = () if training.teachers is None else training.teachers.checkpoints
    return {
        **_numbers(recipe_json(training.recipe)),
        "steps": training.steps,
        "seed": seeds.seed,
        "order_seed": seeds.order,
        "noise_seed": seeds.noise,
        "match_labels": training.match,
        "precision": precision,
        "method": None if training.ensemble is None else training.ensemble.to_json(),
        "model": fingerprint(checkpoint),
        "training data": digest(data.train),
        "validation data": None if data.validation is None else digest(data.validation),
        "outliers": None if data.outliers is None else digest(data.outliers),
        "teacher": [fingerprint(teacher) for teacher in teachers] or None,
    }


def as_provenance(conditions: Conditions, recipe: Recipe, lr: float) -> dict[str, Any]:
    """Returns the conditions as a file's provenance has them.

    Args:
        lr: the one of the recipe's rates whose weights the file holds.
    """
    return {
        "recipe": {**recipe_json(recipe), "lr": lr},
        "rates": list(recipe.lr),
        **{name: conditions[name] for name in WORDED},
        "fingerprints": {name: conditions[name] for name in INPUTS},
    }


def refuse_other_conditions(place: Path, recorded: Conditions, expected: Conditions) -> None:
    """Raises OptionError if a file was made under other conditions than this run's; names the first difference."""
    output.refuse_other(
        Origin(str(place), OptionError, REMEDY), {name: recorded.get(name) for name in expected}, expected
    )


def _numbers(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a recipe without the words that say where its numbers come from."""
    return {name: value for name, value in recipe.items() if name != "source"}
