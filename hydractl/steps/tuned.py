"""What fine-tuning returns: a network for each model or member that was trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.errors import OptionError
from hydractl.steps.result import Result

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.training.validate import Validation


@dataclass(frozen=True, eq=False)
class Tuned:
    """One network after training: the weights that validated best, without validation the last.

    Attributes:
        lr: the learning rate that was chosen.
        step: the step the weights are of; `steps` is how many there were to be.
        validation: how they did; None without validation data, or where an earlier run had finished the file.
        log: loss and rate of each step, accuracy, NLL and ECE of each validation, in order.
    """

    name: str
    checkpoint: Checkpoint
    lr: float
    step: int
    steps: int
    validation: Validation | None
    log: Sequence[Mapping[str, Any]]
    output: Path | None = None

    def __str__(self) -> str:
        if self.validation is None:
            return f"{self.steps} steps at lr {self.lr:g}, no validation"
        found = self.validation
        return (
            f"step {self.step} of {self.steps} at lr {self.lr:g}: "
            f"validation accuracy {found.accuracy:.4f}, NLL {found.nll:.4f}, ECE {found.ece:.4f}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, without the weights."""
        validation = None if self.validation is None else self.validation.to_json()
        return {"name": self.name, "lr": self.lr, "step": self.step, "steps": self.steps, "validation": validation}


@dataclass(frozen=True, eq=False, repr=False)
class Finetuned(Result):
    """What was trained, a network for each model or member."""

    networks: Sequence[Tuned]

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The trained networks, as every other step takes them."""
        return [network.checkpoint for network in self.networks]

    @property
    def checkpoint(self) -> Checkpoint:
        """The one network that was trained.

        Raises:
            OptionError: there are several.
        """
        if len(self.networks) > 1:
            raise OptionError(f"{len(self.networks)} networks were trained: name one of the result's `checkpoints`")
        return self.networks[0].checkpoint

    def to_json(self) -> dict[str, Any]:
        return {
            "outputs": [str(network.output) for network in self.networks if network.output is not None],
            "networks": [network.to_json() for network in self.networks],
        }

    def lines(self) -> Iterator[str]:
        yield from map(str, (network.output or f"{network.name}: {network}" for network in self.networks))

    def facts(self) -> Mapping[str, object]:
        return {str(network.output or network.name): network for network in self.networks}
