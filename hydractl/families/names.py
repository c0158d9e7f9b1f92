"""Where each of our tensors lies in a checkpoint of theirs, as a family's spelling says it.

A spelling maps our module or tensor names to theirs, `{i}` standing for the layer. `name[1/3]` is the second of three
equal parts of the rows of a fused tensor, `name^T` a tensor stored the other way round, and `name:3` one that is
stored with three axes, those in front of length one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hydractl.checkpoint.tensors import LazyTensor, StoredTensor
from hydractl.errors import CheckpointError


@dataclass(frozen=True)
class Source:
    """A tensor of theirs, one part of its rows, or its transpose; `axes` where it has more of them than ours."""

    name: str
    part: int = 0
    parts: int = 1
    transposed: bool = False
    axes: int = 0


def locate(spelling: Mapping[str, str], ours: str) -> Source:
    """Where a spelling says that our tensor `ours` lies."""
    template = re.sub(r"\.layers\.(\d+)\.", ".layers.{i}.", ours)
    layer = re.search(r"\.layers\.(\d+)\.", ours)
    module, _, ending = template.rpartition(".")
    theirs, suffix = (spelling[template], "") if template in spelling else (spelling[module], f".{ending}")
    match = re.fullmatch(r"(.*?)(?:\[(\d)/(\d)\])?(\^T)?(?::(\d))?", theirs)
    assert match is not None
    name, part, parts, transposed, axes = match.groups()
    name = (name + suffix).replace("{i}", layer[1] if layer else "")
    return Source(name, int(part or 0), int(parts or 1), transposed is not None, int(axes or 0))


def read_from(name: str, source: Source, tensor: LazyTensor) -> LazyTensor:
    """Our tensor, still on disk, given the tensor of theirs that it lies in.

    Args:
        name: what messages call the checkpoint.

    Raises:
        CheckpointError: the tensor has no rows to share out or to turn over, or a number that leaves a rest.
    """
    if source.transposed:
        if len(tensor.shape) != 2:
            raise _misshapen(name, source, tensor, "a matrix")
        return LazyTensor(tensor.shape[::-1], tensor.dtype, lambda: tensor.load().T.contiguous())
    if source.parts == 1:
        return tensor
    if not tensor.shape or tensor.shape[0] % source.parts:
        raise _misshapen(name, source, tensor, f"rows for {source.parts} parts of one size")
    rows = tensor.shape[0] // source.parts
    start = source.part * rows
    if isinstance(tensor, StoredTensor):
        # Only these rows are read: a fused tensor would be read three times otherwise.
        return LazyTensor((rows, *tensor.shape[1:]), tensor.dtype, lambda: tensor.rows(start, start + rows))
    return LazyTensor((rows, *tensor.shape[1:]), tensor.dtype, lambda: tensor.load()[start : start + rows])


def _misshapen(name: str, source: Source, tensor: LazyTensor, wanted: str) -> CheckpointError:
    shape = list(tensor.shape)
    return CheckpointError(
        f"{name}: {source.name} has shape {shape}, expected {wanted}: is this the right config.json?"
    )
