"""The results of training: the progress of a run, the measures of a validation, and the trained network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import gather_object

from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.batching import Batches
from hydractl.inference import collect_logits
from hydractl.metrics.classification import classification_metrics, tabulate
from hydractl.model.hydra import Hydra
from hydractl.tasks.task import Answers
from hydractl.training.losses import model_embeddings, pair_logits


class Progress(NamedTuple):
    """The progress of a run after a step."""

    step: int
    loss: float
    lr: float
    samples_per_second: float


OnStep = Callable[[float, Progress], None]  # called with the rate on trial after every step


@dataclass(frozen=True)
class Validation:
    """Accuracy, NLL and ECE of the members' mean probability; of numbers the mean squared error alone."""

    accuracy: float | None = None
    nll: float | None = None
    ece: float | None = None
    mse: float | None = None

    def __str__(self) -> str:
        if self.mse is not None:
            return f"MSE {self.mse:.4f}"
        return f"accuracy {self.accuracy:.4f}, NLL {self.nll:.4f}, ECE {self.ece:.4f}"

    @property
    def quality(self) -> float:
        """Its first measure, higher is better."""
        return (self.accuracy or 0.0) if self.mse is None else -self.mse

    @classmethod
    def of(cls, metrics: Mapping[str, Any]) -> Validation:
        """Takes its measures from all metrics of some answers."""
        names = ("mse",) if "mse" in metrics else ("accuracy", "nll", "ece")
        return cls(**{name: metrics[name] for name in names})

    def better_than(self, other: Validation | None) -> bool:
        """Returns whether the first measure is better, or the same and NLL lower."""
        return other is None or (self.quality, -(self.nll or 0)) > (other.quality, -(other.nll or 0))


def validate(model: Hydra, batches: Batches) -> Validation:
    """Returns the model's results on validation data; each process computes its own batches."""
    with _evaluating(model):
        parts = gather_object([collect_logits(model, batches)] if len(batches) else [])
    logits = torch.cat([part.member_logits for part in parts], 1)
    labels = torch.cat([part.labels for part in parts if part.labels is not None])
    task, temperature = model.task, Calibration(model.calibration.temperature)
    answers = Answers(task=task, member_logits=logits.numpy(), truth=labels.numpy(), calibration=temperature)
    return Validation.of(task.metrics(task.table(answers)))


def validate_pairs(model: Hydra, batches: Batches) -> Validation:
    """Returns how well the model finds each image's own text among the texts of all validation pairs."""
    device = next(model.parameters()).device
    parts = []
    with _evaluating(model), torch.inference_mode():
        for batch in batches:
            images, texts = model_embeddings(model, {name: t.to(device) for name, t in batch.inputs.items()})
            parts.append((images.cpu(), texts.cpu()))
        parts = gather_object(parts)
        images, texts = (torch.cat([part[side] for part in parts], 1) for side in (0, 1))
        logits = pair_logits(images, texts, model.logit_scale.cpu()).expand(model.members, -1, -1).float()
    return Validation.of(asdict(classification_metrics(tabulate(logits.numpy(), np.arange(logits.shape[1])))))


@contextmanager
def _evaluating(model: Hydra) -> Iterator[None]:
    was_training = model.training
    model.eval()
    yield
    model.train(was_training)


@dataclass(frozen=True, eq=False)
class Tuned:
    """A network after training: the weights that validated best; without validation the last ones."""

    checkpoint: Checkpoint
    lr: float  # the learning rate that was chosen
    step: int  # the step of the weights, out of `steps`
    steps: int
    # Of the weights; None without validation data, or if an earlier run had finished the file.
    validation: Validation | None = None
    # Loss and rate of each step, accuracy, NLL and ECE of each validation, in order.
    log: Sequence[Mapping[str, Any]] = ()
    name: str = ""
    output: Path | None = None

    def __str__(self) -> str:
        if self.validation is None:
            return f"{self.steps} steps at lr {self.lr:g}, no validation"
        validation = self.validation
        return f"step {self.step} of {self.steps} at lr {self.lr:g}: validation {validation}"

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON, without the weights."""
        validation = None if self.validation is None else asdict(self.validation)
        return {"name": self.name, "lr": self.lr, "step": self.step, "steps": self.steps, "validation": validation}
