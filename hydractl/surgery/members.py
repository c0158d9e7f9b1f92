"""Takes a file of several members apart again: each as a network of its own."""

from __future__ import annotations

from dataclasses import replace

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import Slot
from hydractl.checkpoint.tensors import LazyTensor


def split_members(checkpoint: Checkpoint) -> list[Checkpoint]:
    """The members of a checkpoint as checkpoints of one member each; what they share is read by each."""
    if checkpoint.members == 1:
        return [checkpoint]
    return [_member(checkpoint, member) for member in range(checkpoint.members)]


def _member(checkpoint: Checkpoint, member: int) -> Checkpoint:
    table = checkpoint.slots()
    return replace(
        checkpoint,
        name=f"{checkpoint.name} member {member}",
        heads={tower: tuple((members[member],) for members in layers) for tower, layers in checkpoint.heads.items()},
        shared=frozenset(table),
        tensors={
            name: tensor if name in checkpoint.shared else _part(checkpoint, table[name], tensor, member)
            for name, tensor in checkpoint.tensors.items()
        },
    )


def _part(checkpoint: Checkpoint, slot: Slot, tensor: LazyTensor, member: int) -> LazyTensor:
    if not slot.is_attention:
        return replace(tensor, shape=tensor.shape[1:], load=lambda: tensor.load()[member])
    if slot.head_axis is None:  # the output bias keeps its leading axis, of one member now
        return replace(tensor, shape=(1, *tensor.shape[1:]), load=lambda: tensor.load()[member : member + 1])
    assert slot.tower is not None and slot.layer is not None
    axis, width = slot.head_axis, checkpoint.spec.tower(slot.tower).head_width
    counts = [len(heads) * width for heads in checkpoint.heads[slot.tower][slot.layer]]
    start, size = sum(counts[:member]), counts[member]
    shape = tuple(size if i == axis else n for i, n in enumerate(tensor.shape))
    return replace(tensor, shape=shape, load=lambda: tensor.load().narrow(axis, start, size))
