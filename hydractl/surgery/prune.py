"""Takes heads out of a member: their rows of q, k, v and their columns of the output projection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from hydractl.checkpoint.contents import Checkpoint, require_one_member
from hydractl.checkpoint.heads import Head, KeptHeads, in_candidate_order, member_heads, without
from hydractl.checkpoint.slots import Slot, kept_entries
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
    require_one_member(checkpoint)
    gone = set(dropped)
    if absent := in_candidate_order(gone - set(member_heads(checkpoint.heads, 0))):
        raise OptionError(f"{checkpoint.name}: has no {absent[0]} to drop")
    heads = without(checkpoint.heads, gone)
    table = checkpoint.slots()
    tensors = {name: _sliced(checkpoint, heads, table[name], tensor) for name, tensor in checkpoint.tensors.items()}
    return replace(checkpoint, heads=heads, tensors=tensors)


def _sliced(checkpoint: Checkpoint, heads: KeptHeads, slot: Slot, tensor: LazyTensor) -> LazyTensor:
    entries = kept_entries(slot, checkpoint.spec, checkpoint.heads, heads)
    if entries is None:
        return tensor
    axis, rows = slot.head_axis or 0, torch.tensor(entries, dtype=torch.long)
    shape = tuple(len(rows) if i == axis else n for i, n in enumerate(tensor.shape))
    return replace(tensor, shape=shape, load=lambda: tensor.load().index_select(axis, rows))
