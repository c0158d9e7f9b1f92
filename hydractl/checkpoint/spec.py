"""A network as a value: its task, its towers, and what turns pooled tokens into logits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, get_args

from hydractl.checkpoint.tower_spec import TowerSpec, check_ranges, later

TaskName = Literal[
    "image-classification",
    "text-classification",
    "zero-shot",
    "multi-label-image-classification",
    "multi-label-text-classification",
    "image-regression",
    "text-regression",
    "image-probability",
    "text-probability",
    "image-embedding",
    "text-embedding",
    "token-classification",
]
#: The towers of a task, which its name tells.
TOWERS_OF: dict[TaskName, tuple[str, ...]] = {
    **{task: ("vision",) if "image" in task else ("text",) for task in get_args(TaskName)},
    "zero-shot": ("vision", "text"),
}
#: The tasks of networks that embed, by the tower that does.
EMBEDDINGS: dict[str, TaskName] = {"vision": "image-embedding", "text": "text-embedding"}
#: What sentence-transformers calls the activations after logits.
SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"
ACTIVATIONS = r"torch\.nn\.(?:modules\.\w+\.)?(Sigmoid|Identity|Softmax)"
#: The `problem_type` of a task in transformers' config.json, which tells it from another on the same inputs; or the
#: activation that a config of sentence-transformers names for one logit.
PROBLEM_TYPES: dict[TaskName, str] = {
    "multi-label-image-classification": "multi_label_classification",
    "multi-label-text-classification": "multi_label_classification",
    "image-regression": "regression",
    "text-regression": "regression",
    "image-probability": SIGMOID,
    "text-probability": SIGMOID,
}


@dataclass(frozen=True)
class ModelSpec:
    """A network: its towers, and what turns pooled tokens into logits.

    `classes` counts the rows of the classifier; a zero-shot model has None and compares embeddings of
    width `projection` instead. A model that embeds has no classes either; its pooled tokens are the embedding, mapped
    to the width `projection` where there is one. A distilled model has two classifiers, one for each of two tokens, and
    answers with the mean of their logits.
    """

    task: TaskName
    towers: tuple[TowerSpec, ...]
    classes: int | None = None
    projection: int | None = None
    classifier_dropout: float = 0.0
    distilled: bool = False
    logit_bias: bool = later(False)  # of a zero-shot model whose logits are scores of pairs, by a sigmoid
    unit_length: bool = later(False)  # of the embeddings of a model without classes
    truncate_dim: int | None = later(None)  # the numbers of such an embedding that are kept, after its length is set

    def __post_init__(self) -> None:
        check_ranges(self)
        names = tuple(tower.name for tower in self.towers)
        if names != TOWERS_OF[self.task]:
            raise ValueError(f"towers are {', '.join(names) or 'none'}, should be {', '.join(TOWERS_OF[self.task])}")
        if (self.prompted or self.embeds) != (self.classes is None):
            raise ValueError("should have `classes`, unless it is zero-shot or embeds")
        if (self.projection is None and self.prompted) or (self.projection is not None and self.classes is not None):
            raise ValueError("should have `projection` where it is zero-shot, and none where it has classes")
        if (self.unit_length or self.truncate_dim is not None) and not self.embeds:
            raise ValueError("unit_length and truncate_dim are for models that embed")
        unprojected = {tower.width for tower in self.towers if not tower.projected}
        if self.projection is not None and unprojected - {self.projection}:
            raise ValueError(f"projection is {self.projection}, should be the width of a tower without one")
        if self.distilled and self.towers[0].pool != "first+second":
            raise ValueError(f"pool is {self.towers[0].pool!r}, should be 'first+second' in a distilled model")

    @property
    def prompted(self) -> bool:
        """True if classes are named by prompts, which are compared with images, instead of by a classifier."""
        return len(self.towers) > 1

    @property
    def embeds(self) -> bool:
        """True if the answer is an embedding: there are no classes."""
        return self.task.endswith("-embedding")

    @property
    def by_token(self) -> bool:
        """True if each token of a text has an answer of its own."""
        return self.towers[0].pool == "each"

    @property
    def problem_type(self) -> str | None:
        """The name in transformers of a task among those on the same inputs; None where it needs or has none."""
        problem = PROBLEM_TYPES.get(self.task)
        return None if problem == SIGMOID else problem

    @property
    def one_class(self) -> bool:
        """True if it chooses one of the classes of its classifier for a sample, so that its answer is a softmax."""
        return self.task not in PROBLEM_TYPES and self.classes is not None and not self.by_token

    @property
    def embeds_unit(self) -> bool:
        """True if embeddings have unit length, as those that are compared have."""
        return self.prompted or self.unit_length

    @property
    def modality(self) -> Literal["image", "text"]:
        """The kind of sample that the network classifies."""
        return "text" if self.towers[0].name == "text" else "image"

    @property
    def features(self) -> int:
        """The width of what the classifier reads: pooled tokens, or embeddings where there is no classifier."""
        width = self.towers[0].features if self.projection is None else self.projection
        return width if self.truncate_dim is None else min(width, self.truncate_dim)

    def tower(self, name: str) -> TowerSpec:
        return next(tower for tower in self.towers if tower.name == name)


def task_of_problem(name: TaskName, problem_type: str | None, classes: int | None, activation: str | None) -> TaskName:
    """Returns the task on the same inputs that a config.json names; the same one if it names none.

    One logit is a number, as transformers trains it, unless sentence-transformers puts a sigmoid after it. A sigmoid
    after each of several logits makes labels of them, or numbers where they are a regression.

    Raises:
        ValueError: one logit that is a class, or an activation that is not supported.
    """
    match = re.fullmatch(ACTIVATIONS, activation or IDENTITY)
    if match is None or (classes == 1 and match[1] == "Softmax"):
        raise ValueError(f"the activation is {activation}, should be {SIGMOID} or {IDENTITY}")
    by_sigmoid = match[1] == "Sigmoid"
    if classes == 1 and problem_type != "multi_label_classification":
        if problem_type == "single_label_classification":
            raise ValueError(f"problem_type is {problem_type}, which needs two or more classes")
        problem_type = SIGMOID if by_sigmoid else "regression"
    elif by_sigmoid:
        problem_type = SIGMOID if problem_type == "regression" else "multi_label_classification"
    alike = (task for task, problem in PROBLEM_TYPES.items() if problem == problem_type)
    return next((task for task in alike if TOWERS_OF[task] == TOWERS_OF[name]), name)


def spec_to_json(value: Any) -> Any:
    """Returns a spec, or a part of one, as `dataclasses.asdict`, without later fields that have their defaults."""
    if isinstance(value, tuple):
        return tuple(map(spec_to_json, value))
    if not is_dataclass(value):
        return value
    values = {each: getattr(value, each.name) for each in fields(value)}
    return {
        each.name: spec_to_json(entry)
        for each, entry in values.items()
        if not (each.metadata.get("later") and entry == each.default)
    }


def spec_from_json(value: Mapping[str, Any]) -> ModelSpec:
    """Returns the spec that `spec_to_json` wrote, also from JSON.

    Raises:
        ValueError: a field is of another type or out of its range, or the parts do not belong together.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(ModelSpec).validate_json(json.dumps(value), strict=True, extra="forbid")
