"""All tasks."""

from functools import partial

import torch

from hydractl.checkpoint.spec import Task
from hydractl.tasks.one_class import log_probabilities, losses, outlier_losses, prediction, taught_losses
from hydractl.tasks.task import TaskRow

_one_class = partial(
    TaskRow,
    answer=log_probabilities,
    probabilities=torch.exp,
    predict=prediction,
    losses=losses,
    taught_losses=taught_losses,
    outlier_losses=outlier_losses,
)
TASKS: tuple[TaskRow, ...] = (
    _one_class(
        name="image-classification",
        model="HydraForImageClassification",
        automatic="AutoModelForImageClassification",
        pipeline="image-classification",
        typical="ImagePipeline",
    ),
    _one_class(
        name="text-classification",
        model="HydraForSequenceClassification",
        automatic="AutoModelForSequenceClassification",
        pipeline="text-classification",
        typical="TextPipeline",
    ),
    _one_class(
        name="zero-shot",
        model="HydraForZeroShotImageClassification",
        automatic="AutoModelForZeroShotImageClassification",
        pipeline="zero-shot-image-classification",
    ),
)


def find_task(name: Task) -> TaskRow:
    """Returns the row of a spec's task."""
    return next(row for row in TASKS if row.name == name)
