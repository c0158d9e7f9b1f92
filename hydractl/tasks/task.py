"""The parts of a task."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from hydractl.checkpoint.spec import Task
from hydractl.tasks.prediction import Prediction


@dataclass(frozen=True)
class TaskRow:
    """What a network answers.

    Attributes:
        name: its name in a spec.
        model: the class in exports/modeling.py.
        automatic: the automatic class of transformers that finds it.
        pipeline: the name of the pipeline in transformers.
        answer: from members' logits `[M,B,C]` and their temperature to the logits `[B,C]` of the ensemble.
        probabilities: from these to probabilities `[B,C]`.
        predict: from members' logits `[M,N,C]`, their temperature and class names to a prediction.
        losses: from logits `[G,B,C]`, labels and label smoothing to the loss of each sample in each copy, `[G*B]`.
        taught_losses: from logits `[G,B,C]` and teachers' probabilities `[B,C]` to parts of the loss, `[G,B,C]`.
        outlier_losses: from logits `[G,B,C]` of outliers to the loss of each, `[G,B]`.
        typical: the pipeline in `hydractl.auto` that gives typicality too; None if there is none.
    """

    name: Task
    model: str
    automatic: str
    pipeline: str
    answer: Callable[[Tensor, float], Tensor]
    probabilities: Callable[[Tensor], Tensor]
    predict: Callable[[Tensor, float, Sequence[str] | None], Prediction]
    losses: Callable[[Tensor, Tensor, float], Tensor]
    taught_losses: Callable[[Tensor, Tensor], Tensor]
    outlier_losses: Callable[[Tensor], Tensor]
    typical: str | None = None
