"""Takes heads out of a member, and members out of a file: each a network of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint, require_one_member
from hydractl.checkpoint.heads import Head, KeptHeads, in_candidate_order, member_heads, without
from hydractl.checkpoint.slots import KEPT, Slot, is_adapted, kept_entries, slots
from hydractl.checkpoint.spec import Adapter
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import OptionError
from hydractl.surgery.numbers import rounded


def drop_heads(checkpoint: Checkpoint, dropped: Iterable[Head]) -> Checkpoint:
    """Returns the checkpoint without some of its heads, equal to the dense network with their output columns zeroed.

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
    return replace(checkpoint, heads=heads, tensors=tensors, ood=None)


def _sliced(checkpoint: Checkpoint, heads: KeptHeads, slot: Slot, tensor: LazyTensor) -> LazyTensor:
    entries = kept_entries(slot, checkpoint.spec, checkpoint.heads, heads)
    if entries is None:
        return tensor
    axis, rows = slot.head_axis or 0, torch.tensor(entries, dtype=torch.long)
    shape = tuple(len(rows) if i == axis else n for i, n in enumerate(tensor.shape))
    return replace(tensor, shape=shape, load=lambda: tensor.load().index_select(axis, rows))


def split_members(checkpoint: Checkpoint) -> list[Checkpoint]:
    """Returns the members of a checkpoint as checkpoints of one member each, changes of shared weights applied."""
    if checkpoint.members == 1:
        return [checkpoint]
    return [_member(checkpoint, member) for member in range(checkpoint.members)]


def _member(checkpoint: Checkpoint, member: int) -> Checkpoint:
    plain = checkpoint.spec.plain
    table = slots(plain)
    return replace(
        checkpoint,
        spec=plain,
        name=f"{checkpoint.name} member {member}",
        heads={tower: tuple((members[member],) for members in layers) for tower, layers in checkpoint.heads.items()},
        shared=frozenset(table),
        tensors={name: _own(checkpoint, name, slot, member) for name, slot in table.items()},
        ood=None,
    )


def pick_members(checkpoint: Checkpoint, members: Sequence[int]) -> Checkpoint:
    """Returns the checkpoint of some of its members, in the order given; they share what they shared.

    A subset loses what was fitted to all members together, such as a temperature.

    Raises:
        OptionError: a member that does not exist, or one given twice.
    """
    if not members or len(set(members)) < len(members) or not all(0 <= m < checkpoint.members for m in members):
        listed, most = ",".join(map(str, members)), checkpoint.members - 1
        raise OptionError(f"{checkpoint.name}: members {listed}: choose from 0 to {most}, each once")
    if len(members) == checkpoint.members == 1:
        return checkpoint
    name = f"{checkpoint.name}:{','.join(map(str, members))}"
    fitted: dict[str, Any] = {"temperature": None, "acceptance": None, "ood": None}
    if len(members) == 1:
        return replace(split_members(checkpoint)[members[0]], name=name, **fitted)
    if len(members) == checkpoint.members:
        del fitted["temperature"]  # which does not depend on their order
    tensors = {
        key: checkpoint.tensors[key]
        if key in checkpoint.shared
        else packed([_part(checkpoint, slot, checkpoint.tensors[key], member) for member in members], slot)
        for key, slot in checkpoint.slots().items()
    }
    heads = {
        tower: tuple(tuple(kept[member] for member in members) for kept in layers)
        for tower, layers in checkpoint.heads.items()
    }
    return replace(checkpoint, name=name, heads=heads, tensors=tensors, **fitted)


def _own(checkpoint: Checkpoint, name: str, slot: Slot, member: int) -> LazyTensor:
    """Returns a tensor of the member's network."""
    tensor = checkpoint.tensors[name]
    if is_adapted(checkpoint.spec.adapter, name, slot):
        return _adapted(checkpoint, name, slot, member)
    return tensor if name in checkpoint.shared else _part(checkpoint, slot, tensor, member)


def _adapted(checkpoint: Checkpoint, name: str, slot: Slot, member: int) -> LazyTensor:
    """Returns a weight or bias with the member's change of it, computed in float64 and rounded once."""
    tensor, adapter = checkpoint.tensors[name], checkpoint.spec.adapter
    assert adapter is not None
    linear, _, part = name.rpartition(".")
    own = _changes(checkpoint, linear)
    if part == "bias":
        return tensor if name in checkpoint.shared else _row(tensor, member, slot)
    if not own:
        return tensor

    def load() -> Tensor:
        numbers = {other: lazy.load()[member] for other, lazy in own.items()}
        return rounded(_changed(adapter, tensor.load().double(), numbers), tensor.dtype)

    return replace(tensor, load=load)


def _changes(checkpoint: Checkpoint, linear: str) -> dict[str, LazyTensor]:
    """Returns the members' tensors beside the weight of a map, by their last name."""
    own = {other: f"{linear}.{other}" for other in ("lora_a", "lora_b", "r", "s", KEPT)}
    return {other: checkpoint.tensors[name] for other, name in own.items() if name in checkpoint.tensors}


def _changed(adapter: Adapter, weight: Tensor, own: Mapping[str, Tensor]) -> Tensor:
    """Returns a member's version of a shared weight `[out,in]`, in float64."""
    if adapter.kind == "low-rank":
        return weight + own["lora_b"].double() @ own["lora_a"].double() * adapter.scale
    if adapter.kind == "rank-one":
        return own["s"].double()[:, None] * weight * own["r"].double()
    columns = torch.zeros(weight.shape[1], dtype=weight.dtype)
    columns[own[KEPT].long()] = 1
    return weight * columns


def _row(tensor: LazyTensor, member: int, slot: Slot) -> LazyTensor:
    """Returns a member's bias as its network stores it: an output bias with a leading axis of one member."""
    alone = slot.is_attention and slot.head_axis is None
    shape = (1, *tensor.shape[1:]) if alone else tensor.shape[1:]
    return LazyTensor(shape, tensor.dtype, lambda: tensor.load()[member].reshape(shape))


def fold(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the same ensemble with each member's changes of shared weights in weights of its own."""
    if checkpoint.spec.adapter is None:
        return checkpoint
    members, plain = split_members(checkpoint), checkpoint.spec.plain
    table = slots(plain)
    changed = {name for name in table if name.endswith(".weight") and _changes(checkpoint, name.rpartition(".")[0])}
    layers = {(table[name].tower, table[name].layer) for name in changed if table[name].is_attention}
    separate = {
        name
        for name, slot in table.items()
        if name not in checkpoint.shared
        or name in changed
        or (slot.is_attention and (slot.tower, slot.layer) in layers)
    }
    tensors = {
        name: packed([member.tensors[name] for member in members], slot)
        if name in separate
        else checkpoint.tensors[name]
        for name, slot in table.items()
    }
    return replace(checkpoint, spec=plain, shared=frozenset(table) - separate, tensors=tensors)


def packed(tensors: Sequence[LazyTensor], slot: Slot) -> LazyTensor:
    """Joins attention along its heads, one member after the other, and stacks anything else by member."""
    if not slot.is_attention:
        shape = (len(tensors), *tensors[0].shape)
        return LazyTensor(shape, tensors[0].dtype, lambda: torch.stack([tensor.load() for tensor in tensors]))
    axis = slot.head_axis or 0
    shape = tuple(
        sum(tensor.shape[axis] for tensor in tensors) if i == axis else n for i, n in enumerate(tensors[0].shape)
    )
    return LazyTensor(shape, tensors[0].dtype, lambda: torch.cat([tensor.load() for tensor in tensors], axis))


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


def dense(checkpoint: Checkpoint, slot: Slot, tensor: LazyTensor) -> LazyTensor:
    """Returns a slot's tensor with every head in its place, and zeros for dropped ones."""
    if slot.head_axis is None or slot.tower is None or slot.layer is None:
        return LazyTensor(slot.shape, tensor.dtype, lambda: tensor.load().reshape(slot.shape))
    width = checkpoint.spec.tower(slot.tower).head_width
    rows = [head * width + i for head in checkpoint.heads[slot.tower][slot.layer][0] for i in range(width)]
    axis = slot.head_axis

    def load() -> Tensor:
        dense = torch.zeros(slot.shape, dtype=tensor.dtype)
        return dense.index_copy_(axis, torch.tensor(rows, dtype=torch.long), tensor.load())

    return LazyTensor(slot.shape, tensor.dtype, load)
