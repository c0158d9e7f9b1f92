"""One training run with one learning rate: what it does, how far it has come, and what it ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hydractl.checkpoint.contents import Checkpoint
from hydractl.training.order import Seeds
from hydractl.training.recipe import Recipe
from hydractl.training.validate import Validation


@dataclass(frozen=True)
class Trial:
    """A run with one of a recipe's learning rates, and the folder of its log and its states.

    `conditions` are all that the result of the whole run depends on, in plain JSON; a state of another is not resumed.
    """

    recipe: Recipe
    lr: float
    seeds: Seeds
    steps: int
    validate_every: int
    save_every: int
    folder: Path
    keep: int = 2
    resume: bool = False
    conditions: Mapping[str, Any] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """All that the result of this trial depends on, in plain JSON."""
        return {**self.conditions, "rate": self.lr}


class Progress(NamedTuple):
    """How far a run has come."""

    step: int
    steps: int
    loss: float
    lr: float
    samples_per_second: float
    seconds_left: float


class Outcome(NamedTuple):
    """What a run ends with: the best weights where there was validation, else the last ones.

    `step` is when it had those weights, `log` the lines of its log.
    """

    checkpoint: Checkpoint
    lr: float
    step: int
    steps: int
    validation: Validation | None
    log: Sequence[Mapping[str, Any]] = ()
