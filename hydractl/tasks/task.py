"""The parts of a task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from hydractl.checkpoint.spec import Task
from hydractl.metrics.checks import FloatArray, IntArray

#: In how many equal parts a quality is counted that is more than right or wrong.
FINE = 10**6


@dataclass(frozen=True)
class Names:
    """The names of a kind of model in transformers.

    Attributes:
        model: the class in exports/modeling.py.
        automatic: the automatic class of transformers that finds it.
        pipeline: the name of the pipeline in transformers.
        typical: the pipeline in `hydractl.auto` that gives typicality too; None if there is none.
    """

    model: str
    automatic: str
    pipeline: str
    typical: str | None = None


class Judged(NamedTuple):
    """Measures of an ensemble's answers to n samples, or words, each `[n]`.

    Attributes:
        quality: as the task measures it, 1 for the best answer; None without labels.
        confidence: higher = more in-distribution; None where answers have none.
        loss: None without labels.
    """

    quality: FloatArray | None
    confidence: FloatArray | None
    loss: FloatArray | None

    def of_sentences(self, counts: IntArray) -> "Judged":
        """Returns those of sentences with so many of the words each: mean quality and loss, the least confidence."""
        starts = np.cumsum(counts) - counts
        quality, loss = (None if x is None else np.add.reduceat(x, starts) / counts for x in (self.quality, self.loss))
        return Judged(quality, None if self.confidence is None else np.minimum.reduceat(self.confidence, starts), loss)


@dataclass(frozen=True)
class TaskRow:
    """Describes what a network answers.

    Attributes:
        name: its name in a spec.
        names: those of its models in transformers.
        answer: from members' logits `[M,B,C]` and their temperature to the logits `[B,C]` of the ensemble.
        probabilities: from these to probabilities `[B,C]`.
        predict: from members' logits `[M,N,C]`, their temperature, class names, and the probabilities from which a
            label is answered, or a class is in a set, where calibration found some, to a prediction.
        losses: from logits `[G,B,C]`, labels `[B]` (or `[B,C]` of several) and label smoothing to the loss of each
            sample in each copy, `[G*B]`.
        taught_losses: from logits `[G,B,C]` and teachers' probabilities `[B,C]` to parts of the loss, `[G,B,C]`.
        outlier_losses: from logits `[G,B,C]` of outliers to the loss of each, `[G,B]`.
        judge: from members' logits `[M,n,C]` float64 over their temperature, labels as for `losses` or None, and the
            variance `[C]` of the labels of all samples, where they are numbers, to what searches go by.
        measured: the name of that quality, for people.
        parts: in how many equal parts a sample's quality is counted.
        confident: whether answers have a confidence.
        several: whether a sample has any number of the C labels rather than one of C classes.
        numbers: whether labels are C numbers; with `several`, as well, numbers from 0 to 1 that a sigmoid gives.
        labelled: whether a sample has labels at all; an embedding has none, and its C are the numbers of it.
        tagged: whether each word of a text has a label.
    """

    name: Task
    names: Names
    answer: Callable[[Tensor, float], Tensor]
    probabilities: Callable[[Tensor], Tensor]
    predict: Callable[..., Any]
    losses: Callable[[Tensor, Tensor, float], Tensor]
    taught_losses: Callable[[Tensor, Tensor], Tensor]
    outlier_losses: Callable[[Tensor], Tensor]
    judge: Callable[[FloatArray, Any, FloatArray | None], Judged]
    measured: str = "accuracy"
    parts: int = 1
    confident: bool = True
    several: bool = False
    numbers: bool = False
    labelled: bool = True
    tagged: bool = False

    @property
    def key(self) -> str:
        """The name of the quality in JSON."""
        return self.measured.lower().replace(" ", "_")

    def variance(self, labels: Any) -> FloatArray | None:
        """Returns the variance `[C]` of labels that are numbers, 0 where all are alike; None for other labels."""
        # Rounding gives equal numbers a variance: ten of 0.1 have 1.9e-34.
        return labels.var(0) * (labels != labels[:1]).any(0) if self.numbers else None
