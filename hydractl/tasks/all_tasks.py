"""All tasks."""

from dataclasses import replace

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import PROBLEM_TYPES, TOWERS_OF, ModelSpec, Task
from hydractl.errors import OptionError
from hydractl.tasks.embedding import embedding
from hydractl.tasks.one_class import one_class
from hydractl.tasks.regression import probability, regression
from hydractl.tasks.several_labels import several_labels
from hydractl.tasks.tagged_words import tagged_words
from hydractl.tasks.task import Names, TaskRow

IMAGES = Names(
    "HydraForImageClassification", "AutoModelForImageClassification", "image-classification", "ImagePipeline"
)
TEXTS = Names(
    "HydraForSequenceClassification", "AutoModelForSequenceClassification", "text-classification", "TextPipeline"
)
TOKENS = Names("HydraForTokenClassification", "AutoModelForTokenClassification", "token-classification")
PROMPTED = Names(
    "HydraForZeroShotImageClassification", "AutoModelForZeroShotImageClassification", "zero-shot-image-classification"
)
#: The fields of a config.json that name an activation after one logit.
CROSS_ENCODER = ("sentence_transformers", "sbert_ce_default_activation_function")
ENCODERS = Names("HydraModel", "AutoModel", "feature-extraction")
TASKS: tuple[TaskRow, ...] = (
    one_class(name="image-classification", names=IMAGES),
    one_class(name="text-classification", names=TEXTS),
    one_class(name="zero-shot", names=PROMPTED),
    several_labels(name="multi-label-image-classification", names=IMAGES),
    several_labels(name="multi-label-text-classification", names=TEXTS),
    regression(name="image-regression", names=IMAGES),
    regression(name="text-regression", names=TEXTS),
    probability(name="image-probability", names=IMAGES),
    probability(name="text-probability", names=TEXTS),
    embedding(name="image-embedding", names=ENCODERS),
    embedding(name="text-embedding", names=ENCODERS),
    tagged_words(name="token-classification", names=TOKENS),
)


def find_task(name: Task) -> TaskRow:
    """Returns the row of a spec's task."""
    return next(row for row in TASKS if row.name == name)


def of_problem(checkpoint: Checkpoint, several: bool, numbers: bool = False) -> Checkpoint:
    """Returns the network for a task on the same inputs whose samples have several labels, numbers, or one class."""
    alike = (row for row in TASKS if TOWERS_OF[row.name] == TOWERS_OF[checkpoint.spec.task])
    row = next(row for row in alike if (row.several, row.numbers) == (several, numbers))
    if row.name == checkpoint.spec.task:
        return checkpoint
    own = {key: value for key, value in checkpoint.config.items() if key not in CROSS_ENCODER}
    config = {**own, "problem_type": PROBLEM_TYPES.get(row.name)}
    return replace(checkpoint, spec=replace(checkpoint.spec, task=row.name), config=config)


def require_one_class(spec: ModelSpec, what: str, remedy: str) -> None:
    """Raises OptionError for a network that does not choose one class, which `what` reads."""
    if not find_task(spec.task).labelled:
        raise OptionError(
            f"{what} needs a model with classes, this one embeds: train a classifier for it by finetune with "
            "`new_classifier` zeros"
        )
    if not spec.one_class:
        raise OptionError(f"{what} needs a model that chooses one class, this one is for {spec.task}: {remedy}")
