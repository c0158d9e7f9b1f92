"""All tasks."""

from dataclasses import replace

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import PROBLEM_TYPES, TOWERS_OF, ModelSpec, Task
from hydractl.errors import OptionError
from hydractl.tasks.one_class import one_class
from hydractl.tasks.several_labels import several_labels
from hydractl.tasks.task import Names, TaskRow

IMAGES = Names(
    "HydraForImageClassification", "AutoModelForImageClassification", "image-classification", "ImagePipeline"
)
TEXTS = Names(
    "HydraForSequenceClassification", "AutoModelForSequenceClassification", "text-classification", "TextPipeline"
)
PROMPTED = Names(
    "HydraForZeroShotImageClassification", "AutoModelForZeroShotImageClassification", "zero-shot-image-classification"
)
TASKS: tuple[TaskRow, ...] = (
    one_class(name="image-classification", names=IMAGES),
    one_class(name="text-classification", names=TEXTS),
    one_class(name="zero-shot", names=PROMPTED),
    several_labels(name="multi-label-image-classification", names=IMAGES),
    several_labels(name="multi-label-text-classification", names=TEXTS),
)


def find_task(name: Task) -> TaskRow:
    """Returns the row of a spec's task."""
    return next(row for row in TASKS if row.name == name)


def of_problem(checkpoint: Checkpoint, several: bool) -> Checkpoint:
    """Returns the network for a task on the same inputs whose samples have several labels, or one class."""
    towers = TOWERS_OF[checkpoint.spec.task]
    if find_task(checkpoint.spec.task).several == several:
        return checkpoint
    row = next(row for row in TASKS if row.several == several and TOWERS_OF[row.name] == towers)
    config = {**checkpoint.config, "problem_type": PROBLEM_TYPES.get(row.name)}
    return replace(checkpoint, spec=replace(checkpoint.spec, task=row.name), config=config)


def require_one_class(spec: ModelSpec, what: str, remedy: str) -> None:
    """Raises OptionError for a network whose samples have several labels, which `what` does not read."""
    if find_task(spec.task).several:
        raise OptionError(f"{what} needs a model that chooses one class, this one is multi-label: {remedy}")
