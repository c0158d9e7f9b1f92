"""Turns somebody else's checkpoint into ours: accounts for every tensor, and fits positions to its images' size."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from hydractl.checkpoint.contents import Checkpoint, shorten
from hydractl.checkpoint.layout import Layout, stored_shapes
from hydractl.checkpoint.slots import Slot, all_heads, slots
from hydractl.checkpoint.spec import ModelSpec, task_of_problem
from hydractl.checkpoint.tensors import DTYPES, LazyTensor, StoredNumbers, TensorMap, torch_dtype
from hydractl.checkpoint.tower_spec import ImageEmbeddings, TowerSpec
from hydractl.errors import CheckpointError
from hydractl.families.config import ArchitectureConfig, Fields, ImageSide, config_origin, read_config
from hydractl.families.family import Family, Interpolation, Source, locate, read_from
from hydractl.schema import Origin, document
from hydractl.text import shortened

if TYPE_CHECKING:
    import torch
    from torch import Tensor

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
        if spec.classes is None or spec.towers[0].pool == "each":
            return spec  # whatever the config says, transformers chooses one label for a token
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
        if spec.classes and table["classifier.weight"].name in missing:
            raise CheckpointError(
                f"{name}: is a base {family.title} without a classifier: train one by finetune with `new_classifier` "
                f"zeros, or save it as {family.architectures[0]}"
            )
        raise CheckpointError(f"{name}: tensors are missing: {shorten(missing)}: is this the right config.json?")
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


def complete_base(
    name: str, family: Family, config: Mapping[str, Any], tensors: TensorMap
) -> tuple[Mapping[str, Any], TensorMap]:
    """Completes a base network so that it reads as a classifier that is still to train.

    The pooler is drawn at random, everything else that a base lacks is zeros. A classifier comes back unchanged.
    """
    if (base := family.base) is None:
        return config, tensors
    architectures = set(config.get("architectures") or family.architectures)
    if base.part is not None and config.get("model_type") != family.model_type:
        config = {"model_type": family.model_type, "architectures": list(family.architectures), base.part: config}
    is_bare = not any(key.startswith(base.prefix) for key in tensors)
    placed = {base.prefix + key if is_bare else key: tensor for key, tensor in tensors.items()}
    spec = model_spec(name, family, config)
    table, groups = fitting_table(family.names(config), spec, placed.keys()), slots(spec)
    if table["classifier.weight"].name not in placed or not architectures & set(family.architectures):
        # Its own last layers answer another task, all but a pooler that a classifier has, too.
        poolers = {source.name for ours, source in table.items() if groups[ours].group == "pooler"}
        placed = {key: tensor for key, tensor in placed.items() if key.startswith(base.prefix) or key in poolers}
    kind = next((placed[source.name].kind for source in table.values() if source.name in placed), "F32")
    fresh = {
        table[ours].name: LazyTensor(slot.shape, kind, Untrained(ours, slot, kind))
        for ours, slot in groups.items()
        if table[ours].name not in placed
        and (slot.group in ("classifier", "pooler") or ours.rpartition(".")[0] in base.untrained)
    }
    return config, placed | fresh


@dataclass(frozen=True)
class Untrained:
    """The numbers of a tensor that a base network lacks; called, it returns them."""

    name: str  # ours
    slot: Slot
    kind: str

    def __call__(self) -> torch.Tensor:
        import torch

        is_scale = self.name.endswith("norm.weight")
        drawn = torch.ones(self.slot.shape) if is_scale else torch.zeros(self.slot.shape)
        if not is_scale and self.slot.group == "pooler" and self.name.endswith(".weight"):
            drawn.normal_(std=STANDARD_DEVIATION, generator=torch.Generator().manual_seed(0))
        return drawn.to(torch_dtype(self.kind))


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


POSITION, RELATIVE = ".embeddings.position", ".attention.relative"


def _by_side(value: Any) -> Any:
    sides = [value, value] if type(value) is int else value
    return dict(zip(("height", "width"), sides, strict=False)) if isinstance(sides, list) else sides


class _Sides(Fields):
    height: ImageSide | None = None
    width: ImageSide | None = None


class _Processor(Fields):
    """The settings of an image processor that decide the size of its images."""

    do_resize: bool | None = True  # null is off, as to transformers
    size: Annotated[_Sides, BeforeValidator(_by_side)] | None = None
    do_center_crop: bool | None = True
    crop_size: Annotated[_Sides, BeforeValidator(_by_side)] | None = None


def processed_size(preprocessing: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns height and width of the images that a checkpoint's preprocessing gives; None if they differ or vary."""
    settings = preprocessing.get("preprocessor_config.json")
    if settings is None:
        settings = preprocessing.get("processor_config.json", {}).get("image_processor")
    if not isinstance(settings, dict):
        return None
    try:
        saved = document(settings, Origin("preprocessor_config.json", CheckpointError, "")).read(_Processor)
    except CheckpointError:  # whoever reads images by them reports it
        return None
    sides = saved.crop_size if saved.do_center_crop and saved.crop_size else saved.size if saved.do_resize else None
    return (sides.height, sides.width) if sides and sides.height and sides.width else None


def at_processed_size(family: Family, checkpoint: Checkpoint) -> Checkpoint:
    """Returns the network for the images that its preprocessing gives, with positions interpolated once.

    Changes nothing if transformers interpolates no positions of this family, or the size is that of the config.
    """
    size, how = processed_size(checkpoint.preprocessing), family.interpolation
    if how is None or size is None or not isinstance(checkpoint.spec.towers[0].embeddings, ImageEmbeddings):
        return checkpoint
    if checkpoint.spec.towers[0].embeddings.image_size == size:
        return checkpoint
    config = {**checkpoint.config, "image_size": size[0] if size[0] == size[1] else list(size)}
    spec, tensors = model_spec(checkpoint.name, family, config), dict(checkpoint.tensors)
    before, after = checkpoint.spec.towers[0], spec.towers[0]
    # Another grid may have as many patches: shapes do not tell.
    shapes = stored_shapes(spec, checkpoint.layout) if _grid(before) != _grid(after) else {}
    for name, shape in shapes.items():
        if name.startswith(before.name) and name.endswith((POSITION, RELATIVE)):
            resize = _position if name.endswith(POSITION) else _relative
            tensors[name] = _resized(tensors[name], shape, lambda t, r=resize: r(t, before, after, how))
    return replace(checkpoint, config=config, spec=spec, tensors=tensors)


def _resized(tensor: LazyTensor, shape: tuple[int, ...], resize: Any) -> LazyTensor:
    return LazyTensor(shape, tensor.kind, lambda: resize(tensor.load()))


def _position(table: Tensor, before: TowerSpec, after: TowerSpec, how: Interpolation) -> Tensor:
    """Returns positions `[T,D]` of another grid, by the operations of transformers and so with its rounding."""
    import torch
    from torch.nn import functional as F

    old, new = before.embeddings, after.embeddings
    assert isinstance(old, ImageEmbeddings) and isinstance(new, ImageEmbeddings)
    first, patches = table.split([old.prefix - old.unplaced, old.patches])
    grid = patches.unflatten(0, old.grid).permute(2, 0, 1)[None]
    grid = grid.to(torch.float32) if how.single else grid
    grid = F.interpolate(grid, size=new.grid, mode="bicubic", align_corners=False, antialias=how.antialias)
    return torch.cat([first, grid[0].permute(1, 2, 0).flatten(0, 1).to(table.dtype)])


def _relative(table: Tensor, before: TowerSpec, after: TowerSpec, how: Interpolation) -> Tensor:
    """Returns the numbers of distances `[H,distances]` in another grid."""
    import torch
    from torch.nn import functional as F

    old, new = ([2 * side - 1 for side in _grid(tower)] for tower in (before, after))
    distances, rest = table.split([table.shape[1] - 3, 3], 1)
    grid = F.interpolate(distances.unflatten(1, old)[None], size=new, mode="bilinear")
    return torch.cat([grid[0].flatten(1), rest], 1)


def _grid(tower: TowerSpec) -> tuple[int, int]:
    assert isinstance(tower.embeddings, ImageEmbeddings)
    return tower.embeddings.grid
