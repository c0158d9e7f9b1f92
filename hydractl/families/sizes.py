"""Networks for the size of image that their preprocessing gives, as transformers interpolates positions to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.layout import stored_shapes
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.checkpoint.tower_spec import ImageEmbeddings, TowerSpec
from hydractl.errors import CheckpointError
from hydractl.families.config import Fields, ImageSide
from hydractl.families.convert import model_spec
from hydractl.families.family import Family, Interpolation
from hydractl.schema import Origin, document

if TYPE_CHECKING:
    from torch import Tensor

POSITION, RELATIVE = ".embeddings.position", ".attention.relative"


def _by_side(value: Any) -> Any:
    sides = [value, value] if type(value) is int else value
    return dict(zip(("height", "width"), sides, strict=False)) if isinstance(sides, list) else sides


class _Sides(Fields):
    height: ImageSide | None = None
    width: ImageSide | None = None


class _Processor(Fields):
    """The settings of an image processor that decide the size of its images."""

    do_resize: bool = True
    size: Annotated[_Sides, BeforeValidator(_by_side)] | None = None
    do_center_crop: bool = True
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
    for name, shape in stored_shapes(spec, checkpoint.layout).items():
        if name.endswith((POSITION, RELATIVE)) and shape != tensors[name].shape:
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
