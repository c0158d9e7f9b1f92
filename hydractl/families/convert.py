"""Turns somebody else's checkpoint into ours and accounts for every tensor."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.contents import Checkpoint, shorten
from hydractl.checkpoint.layout import Layout, stored_shapes
from hydractl.checkpoint.slots import Slot, all_heads, slots
from hydractl.checkpoint.spec import ModelSpec, task_of_problem
from hydractl.checkpoint.tensors import DTYPES, LazyTensor, StoredNumbers, TensorMap
from hydractl.errors import CheckpointError
from hydractl.families.config import ArchitectureConfig, config_origin, read_config
from hydractl.families.family import Base, Family, Source, locate, read_from
from hydractl.text import shortened

if TYPE_CHECKING:
    import torch

Spellings = tuple[Mapping[str, str], ...]
STANDARD_DEVIATION = 0.02  # as BERT and its kin are initialised


def from_library(name: str, family: Family, config: Mapping[str, Any], tensors: TensorMap) -> Checkpoint:
    """Returns a dense checkpoint of one member, without preprocessing, whose tensors stay on disk.

    Raises:
        CheckpointError: the config asks for something that is not supported, or a tensor is missing, left over,
            misshapen, or given twice.
    """
    fields = read_config(name, config, family.config, family.config_file)
    spec = _described(name, family, fields)
    heads = all_heads(spec)
    shapes = stored_shapes(spec, Layout(heads, frozenset(slots(spec))))
    renamed = _rename(name, family, spec, family.names(config), tensors=tensors)
    return Checkpoint(
        name=name,
        family=family.name,
        config=config,
        spec=spec,
        heads=heads,
        shared=frozenset(shapes),
        tensors={key: _shaped(name, key, renamed[key], shape) for key, shape in shapes.items()},
        labels=None if spec.classes is None else fields.labels,
        preprocessing={},
    )


def model_spec(name: str, family: Family, config: Mapping[str, Any]) -> ModelSpec:
    """Returns the network that a config describes.

    Raises:
        CheckpointError: see `read_config`, or its fields do not fit each other.
    """
    return _described(name, family, read_config(name, config, family.config, family.config_file))


def _described(name: str, family: Family, fields: ArchitectureConfig) -> ModelSpec:
    try:
        spec = family.described(fields.spec())
        if spec.embeds:
            return spec
        problem, activation = (getattr(fields, name, None) for name in ("problem_type", "logit_activation"))
        return replace(spec, task=task_of_problem(spec.task, problem, spec.classes, activation))
    except ValueError as error:
        raise config_origin(name, family.config_file).refusal(str(error)) from error


def _rename(
    name: str, family: Family, spec: ModelSpec, names: Spellings, tensors: Mapping[str, LazyTensor]
) -> dict[str, LazyTensor]:
    current = _modernise(name, family, tensors)
    table = fitting_table(names, spec, current.keys())
    claimed = {source.name for source in table.values()}
    if missing := sorted(claimed - current.keys()):
        raise _missing_error(name, family, missing, table["classifier.weight"].name if spec.classes else None)
    left = sorted(
        key for key in current.keys() - claimed if not any(re.fullmatch(pattern, key) for pattern in family.inert)
    )
    if left:
        raise CheckpointError(
            f"{name}: tensors that no part of a {family.title} with this config claims: {shorten(left)}"
        )
    return {key: read_from(name, source, current[source.name]) for key, source in table.items()}


def fitting_table(spellings: Spellings, spec: ModelSpec, theirs: Collection[str]) -> dict[str, Source]:
    """Maps our tensor names to theirs, by the spelling that fits most of their names."""
    tables = [{key: locate(spelling, key) for key in slots(spec)} for spelling in spellings]
    return max(tables, key=lambda table: sum(source.name in theirs for source in table.values()))


def _modernise(name: str, family: Family, tensors: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    current: dict[str, LazyTensor] = {}
    for key, tensor in tensors.items():
        ending = next((old for old in family.legacy if key.endswith(old)), None)
        modern = key.removesuffix(ending) + family.legacy[ending] if ending else key
        if modern in current:
            raise CheckpointError(f"{name}: holds {shortened(modern, 100)} under two spellings: keep one")
        current[modern] = tensor
    return current


def _missing_error(name: str, family: Family, missing: list[str], classifier: str | None) -> CheckpointError:
    if classifier in missing:
        return CheckpointError(
            f"{name}: is a base {family.title} without a classifier: train one by finetune with `new_classifier` "
            f"zeros, or save it as {family.architectures[0]}"
        )
    return CheckpointError(f"{name}: tensors are missing: {shorten(missing)}: is this the right config.json?")


def complete_base(
    name: str, family: Family, config: Mapping[str, Any], tensors: TensorMap
) -> tuple[Mapping[str, Any], TensorMap]:
    """Completes a base network so that it reads as a classifier that is still to train.

    The pooler is drawn at random, everything else that a base lacks is zeros. A classifier comes back unchanged.
    """
    if family.base is None:
        return config, tensors
    import torch

    architectures = set(config.get("architectures") or family.architectures)
    config = _classifier_config(family, family.base, config)
    placed = _inside_classifier(family.base, tensors)
    spec = model_spec(name, family, config)
    table, groups = fitting_table(family.names(config), spec, placed.keys()), slots(spec)
    if table["classifier.weight"].name not in placed or not architectures & set(family.architectures):
        # Its own last layers answer another task, all but a pooler that a classifier has, too.
        poolers = {source.name for ours, source in table.items() if groups[ours].group == "pooler"}
        placed = {key: tensor for key, tensor in placed.items() if key.startswith(family.base.prefix) or key in poolers}
    dtype = next((placed[source.name].dtype for source in table.values() if source.name in placed), torch.float32)
    fresh = {
        table[ours].name: LazyTensor(slot.shape, dtype, Untrained(ours, slot, dtype))
        for ours, slot in groups.items()
        if table[ours].name not in placed
        and (slot.group in ("classifier", "pooler") or ours.rpartition(".")[0] in family.base.untrained)
    }
    return config, placed | fresh


def _classifier_config(family: Family, base: Base, config: Mapping[str, Any]) -> Mapping[str, Any]:
    if base.part is None or config.get("model_type") == family.model_type:
        return config
    return {"model_type": family.model_type, "architectures": list(family.architectures), base.part: config}


def _inside_classifier(base: Base, tensors: TensorMap) -> dict[str, LazyTensor]:
    """Returns the encoder's tensors by their names inside a classifier."""
    is_bare = not any(name.startswith(base.prefix) for name in tensors)
    return {base.prefix + name if is_bare else name: tensor for name, tensor in tensors.items()}


@dataclass(frozen=True)
class Untrained:
    """The numbers of a tensor that a base network lacks; called, it returns them."""

    name: str  # ours
    slot: Slot
    dtype: torch.dtype

    def __call__(self) -> torch.Tensor:
        import torch

        is_scale = self.name.endswith("norm.weight")
        drawn = torch.ones(self.slot.shape) if is_scale else torch.zeros(self.slot.shape)
        if not is_scale and self.slot.group == "pooler" and self.name.endswith(".weight"):
            drawn.normal_(std=STANDARD_DEVIATION, generator=torch.Generator().manual_seed(0))
        return drawn.to(self.dtype)


def _shaped(name: str, key: str, tensor: LazyTensor, shape: tuple[int, ...]) -> LazyTensor:
    def without_leading_ones(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(dropwhile(lambda size: size == 1, sizes))

    # Checkpoints differ in how many axes of length one a token or a position table starts with.
    if without_leading_ones(tensor.shape) != without_leading_ones(shape):
        raise CheckpointError(
            f"{name}: {key} has shape {list(tensor.shape)}, expected {list(shape)}: is this the right config.json?"
        )
    if "F" not in tensor.kind:
        raise CheckpointError(f"{name}: {key} holds {DTYPES[tensor.kind]}, expected floating-point numbers")
    if isinstance(tensor.load, StoredNumbers):
        return LazyTensor(shape, tensor.kind, replace(tensor.load, shape=shape))
    if tensor.shape == shape:
        return tensor
    return LazyTensor(shape, tensor.kind, lambda: tensor.load().reshape(shape))
