"""Takes heads out of a member: their rows of q, k, v and their columns of the output projection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, KeptHeads, in_candidate_order, member_heads
from hydractl.checkpoint.slots import Slot
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import OptionError


def drop_heads(checkpoint: Checkpoint, dropped: Iterable[Head]) -> Checkpoint:
    """The checkpoint without some of its heads, equal to the dense network with their output columns zeroed.

    The output bias belongs to the layer and stays, also when no head is left. Nothing is read yet.

    Args:
        checkpoint: of one member; prune members before fusing them.
        dropped: heads in original numbering, each of which the member keeps.

    Raises:
        OptionError: the checkpoint has several members, or a head is not there to drop.
    """
    if checkpoint.members > 1:
        raise OptionError(f"{checkpoint.name}: has {checkpoint.members} members: prune each before fusing them")
    gone = set(dropped)
    if absent := in_candidate_order(gone - set(member_heads(checkpoint.heads, 0))):
        raise OptionError(f"{checkpoint.name}: has no {absent[0]} to drop")
    heads: KeptHeads = {
        tower: tuple(
            (tuple(head for head in members[0] if Head(tower, layer, head) not in gone),)
            for layer, members in enumerate(layers)
        )
        for tower, layers in checkpoint.heads.items()
    }
    table = checkpoint.slots()
    tensors = {name: _sliced(checkpoint, heads, table[name], tensor) for name, tensor in checkpoint.tensors.items()}
    return replace(checkpoint, heads=heads, tensors=tensors)


def _sliced(checkpoint: Checkpoint, heads: KeptHeads, slot: Slot, tensor: LazyTensor) -> LazyTensor:
    if slot.head_axis is None or slot.tower is None or slot.layer is None:
        return tensor
    before, after = checkpoint.heads[slot.tower][slot.layer][0], heads[slot.tower][slot.layer][0]
    if before == after:
        return tensor
    axis, width = slot.head_axis, checkpoint.spec.tower(slot.tower).head_width
    places = [before.index(head) for head in after]
    rows = torch.tensor([place * width + i for place in places for i in range(width)], dtype=torch.long)
    shape = tuple(len(rows) if i == axis else n for i, n in enumerate(tensor.shape))
    return replace(tensor, shape=shape, load=lambda: tensor.load().index_select(axis, rows))
