"""The parts of a task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hydractl.checkpoint.spec import Task


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
    several: bool = False
    numbers: bool = False
    labelled: bool = True
    tagged: bool = False
