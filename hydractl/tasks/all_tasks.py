"""All tasks."""

from dataclasses import replace

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import PROBLEM_TYPES, TOWERS_OF, ModelSpec, TaskName
from hydractl.errors import OptionError
from hydractl.tasks.classes import Classes
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
    Classes("zero-shot", PROMPTED, prompted=True),
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
    """Returns the network for another kind of answer to the same inputs: classes, labels or numbers."""
    alike = (task for task in TASKS if TOWERS_OF[task.name] == TOWERS_OF[checkpoint.spec.task])
    task = next(task for task in alike if type(task) is kind)
    if task.name == checkpoint.spec.task:
        return checkpoint
    kept = {key: value for key, value in checkpoint.config.items() if key not in CROSS_ENCODER}
    config = {**kept, "problem_type": PROBLEM_TYPES.get(task.name)}
    return replace(checkpoint, spec=replace(checkpoint.spec, task=task.name), config=config)


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
