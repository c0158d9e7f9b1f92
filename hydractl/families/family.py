"""What a family is: a table that says how an architecture's config and tensors read in this project's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydractl.checkpoint.spec import Task
from hydractl.families.config import Config


@dataclass(frozen=True)
class Base:
    """How the network inside a classifier is written where it comes without one.

    A bare encoder leaves out `prefix`, which stands before its tensors' names inside a classifier. A model for another
    task, such as predicting masked words, has the prefix, and beside the encoder tensors that a classifier has no use
    for.
    """

    prefix: str
    surplus: tuple[str, ...] = ()  # patterns of the names of those tensors
    model_type: str | None = None  # of a bare encoder's config.json, where it differs from a classifier's
    part: str | None = None  # the field of a classifier's config that holds a config of that type


@dataclass(frozen=True)
class Family:
    """One architecture, as data.

    `spellings` map our module or tensor names to theirs, `{i}` standing for the layer; a checkpoint uses one of
    them throughout. `.weight` and `.bias` are carried over.
    """

    name: str
    title: str
    model_type: str  # of config.json
    architectures: tuple[str, ...]  # transformers classes whose checkpoints this family reads
    config: type[Config]  # the fields of config.json that it reads
    spellings: tuple[Mapping[str, str], ...]
    inert: tuple[str, ...] = ()  # patterns of tensor names real checkpoints carry to no effect
    base: Base | None = None  # what a new classifier can be put on; None: only checkpoints that have one are read
    legacy: Mapping[str, str] = field(default_factory=dict)  # endings of older releases
    refused: Mapping[str, str] = field(default_factory=dict)  # architectures not read, and why
    task: Task = "image-classification"
    library: str = "transformers"  # whose own forward pass the tests compare with
    #: For export: which of the spellings its own library writes, and the config as that library wants it.
    saved_as: Callable[[Mapping[str, Any]], int] = lambda config: 0
    to_source: Callable[[Mapping[str, Any], Sequence[str] | None], dict[str, Any]] | None = None
    config_file: str = "config.json"
    weights_file: str = "model.safetensors"

    @property
    def model_types(self) -> tuple[str, ...]:
        """What a config.json of the family, or of its base network, says it is."""
        own = self.base.model_type if self.base else None
        return (self.model_type, own) if own else (self.model_type,)
