"""All tasks."""

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import PROBLEM_TYPES, TOWERS_OF, ModelSpec, TaskName
from hydractl.errors import OptionError
from hydractl.tasks.classes import Classes, PromptedClasses
from hydractl.tasks.embeddings import Embeddings
from hydractl.tasks.labels import Labels
from hydractl.tasks.numbers import Numbers
from hydractl.tasks.task import Names, Task
from hydractl.tasks.words import Words

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
ENCODERS = Names("HydraModel", "AutoModel", "feature-extraction")
#: The fields of a config.json that name an activation after one logit.
CROSS_ENCODER = ("sentence_transformers", "sbert_ce_default_activation_function")
TASKS: tuple[Task, ...] = (
    Classes("image-classification", IMAGES),
    Classes("text-classification", TEXTS),
    PromptedClasses("zero-shot", PROMPTED),
    Labels("multi-label-image-classification", IMAGES),
    Labels("multi-label-text-classification", TEXTS),
    Numbers("image-regression", IMAGES),
    Numbers("text-regression", TEXTS),
    Numbers("image-probability", IMAGES, sigmoid=True),
    Numbers("text-probability", TEXTS, sigmoid=True),
    Embeddings("image-embedding", ENCODERS),
    Embeddings("text-embedding", ENCODERS),
    Words("token-classification", TOKENS),
)


def find_task(name: TaskName) -> Task:
    """Returns the task of a spec."""
    return next(task for task in TASKS if task.name == name)


def with_task(checkpoint: Checkpoint, kind: type[Task]) -> Checkpoint:
    """Returns the network for another kind of answer to the same inputs: classes, labels or numbers; a tagger stays."""
    if isinstance(find_task(checkpoint.spec.task), Words):
        return checkpoint
    alike = (task for task in TASKS if TOWERS_OF[task.name] == TOWERS_OF[checkpoint.spec.task])
    task = next(task for task in alike if type(task) is kind)
    if task.name == checkpoint.spec.task:
        return checkpoint
    kept = {key: value for key, value in checkpoint.config.items() if key not in CROSS_ENCODER}
    config = {**kept, "problem_type": PROBLEM_TYPES.get(task.name)}
    return replace(checkpoint, spec=replace(checkpoint.spec, task=task.name), config=config)


def kind_of_labels(labels: NDArray[Any] | None, by_word: bool) -> type[Task]:
    """Returns the kind of answers that labels are; numbers where they hold no classes.

    Args:
        by_word: whether each word has one.
    """
    if by_word:
        return Words
    if labels is None or labels.dtype.kind == "f":
        return Numbers
    return Labels if labels.ndim == 2 else Classes


def require_one_class(spec: ModelSpec, what: str, remedy: str) -> None:
    """Raises OptionError for a network that does not choose one class, which `what` reads."""
    task = find_task(spec.task)
    if isinstance(task, Embeddings):
        raise OptionError(
            f"{what} needs a model with classes, this one embeds: train a classifier for it by finetune with "
            "`new_classifier` zeros"
        )
    if task.tells_ood != "scores":
        raise OptionError(f"{what} needs a model that chooses one class, this one is for {spec.task}: {remedy}")
