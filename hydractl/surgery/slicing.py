"""Takes heads, MLP units and towers out of a member, and members out of a file; rounds their numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from hydractl.checkpoint.calibration import NOT_CALIBRATED, Calibration
from hydractl.checkpoint.contents import Checkpoint, require_one_member
from hydractl.checkpoint.heads import Head, Unit, in_candidate_order, member_heads, without
from hydractl.checkpoint.layout import Division, Layout, member_units, remaining, union
from hydractl.checkpoint.slots import Slot, slots
from hydractl.checkpoint.spec import EMBEDDINGS, ModelSpec
from hydractl.checkpoint.tensors import LazyTensor, kind_of, rounded, selected
from hydractl.errors import CheckpointError, OptionError


def with_dtype(checkpoint: Checkpoint, dtype: torch.dtype | None) -> Checkpoint:
    """Returns the checkpoint with every floating-point tensor in `dtype`, converted when read; unchanged if None.

    Raises:
        CheckpointError: when read, a number is too large for `dtype`.
    """
    if dtype is None:
        return checkpoint
    tensors = {
        name: _converted(checkpoint.name, name, tensor, dtype) if tensor.dtype.is_floating_point else tensor
        for name, tensor in checkpoint.tensors.items()
    }
    return replace(checkpoint, tensors=tensors)


def _converted(where: str, name: str, tensor: LazyTensor, dtype: torch.dtype) -> LazyTensor:
    def load() -> Tensor:
        converted = rounded(tensor.load(), dtype)
        if not torch.isfinite(converted).all():
            raise CheckpointError(f"{where}: {name} holds numbers too large for {dtype}: choose bfloat16 or float32")
        return converted

    return LazyTensor(tensor.shape, kind_of(dtype), load)


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
    return _cut(checkpoint, replace(checkpoint.layout, heads=without(checkpoint.heads, gone)))


def drop_units(checkpoint: Checkpoint, dropped: Iterable[Unit]) -> Checkpoint:
    """Returns the checkpoint without some MLP units, equal to the dense network with their activations zeroed.

    Nothing is read yet.

    Args:
        checkpoint: of one member; prune members before fusing them.
        dropped: units in original numbering, each of which the member keeps.

    Raises:
        OptionError: the checkpoint has several members, norms its units, or a unit is not there to drop.
    """
    require_one_member(checkpoint)
    if any(tower.unit_norm for tower in checkpoint.spec.towers):
        raise OptionError(
            f"{checkpoint.name}: normalises its units together, so they cannot be dropped singly: drop heads"
        )
    gone, layout = set(dropped), checkpoint.layout
    if absent := in_candidate_order(gone - set(member_units(layout, checkpoint.spec, 0))):
        raise OptionError(f"{checkpoint.name}: has no {absent[0]} to drop")
    return _cut(checkpoint, layout.without_units(checkpoint.spec, gone))


def _cut(checkpoint: Checkpoint, after: Layout) -> Checkpoint:
    """Returns a checkpoint of one member with the heads and units of a layout."""
    before, spec = checkpoint.layout, checkpoint.spec
    tensors = dict(checkpoint.tensors)
    for name, slot in checkpoint.slots().items():
        division = after.division(slot, spec)
        entries = remaining(before.division(slot, spec), division)
        if entries is not None and division is not None:
            tensors[name] = selected(tensors[name], division.axis, entries)
    return checkpoint.with_layout(after, spec, tensors)


def split_members(checkpoint: Checkpoint) -> list[Checkpoint]:
    """Returns the members of a checkpoint as checkpoints of one member each."""
    if checkpoint.members == 1:
        return [checkpoint]
    return [_member(checkpoint, member) for member in range(checkpoint.members)]


def _member(checkpoint: Checkpoint, member: int) -> Checkpoint:
    table = checkpoint.slots()
    layout = replace(checkpoint.layout.pick(checkpoint.spec, [member]), shared=frozenset(table))
    tensors = {name: _own(checkpoint, name, slot, member) for name, slot in table.items()}
    return replace(checkpoint.with_layout(layout, checkpoint.spec, tensors), name=f"{checkpoint.name} member {member}")


def pick_members(checkpoint: Checkpoint, members: Sequence[int]) -> Checkpoint:
    """Returns the checkpoint of some of its members, in the order given; they share what they shared.

    What was fitted to all members together stays with all of them in their own order alone.

    Raises:
        OptionError: a member that does not exist, or one given twice.
    """
    if not members or len(set(members)) < len(members) or not all(0 <= m < checkpoint.members for m in members):
        listed, most = ",".join(map(str, members)), checkpoint.members - 1
        raise OptionError(f"{checkpoint.name}: members {listed}: choose from 0 to {most}, each once")
    if list(members) == list(range(checkpoint.members)):
        return checkpoint
    name = f"{checkpoint.name}:{','.join(map(str, members))}"
    if len(members) == 1:
        return replace(split_members(checkpoint)[members[0]], name=name)
    layout, tensors = checkpoint.layout.pick(checkpoint.spec, members), {}
    for key, slot in checkpoint.slots().items():
        tensor, division = checkpoint.tensors[key], layout.division(slot, checkpoint.spec)
        if key not in checkpoint.shared:
            parts = [_part(checkpoint, slot, tensor, member) for member in members]
            tensors[key] = packed(parts, slot, division)
        elif division is not None and slot.unit_axis is not None:
            tensors[key] = _kept_by_any(checkpoint, slot, tensor, division)
        else:
            tensors[key] = tensor
    return replace(checkpoint.with_layout(layout, checkpoint.spec, tensors), name=name)


def _kept_by_any(checkpoint: Checkpoint, slot: Slot, tensor: LazyTensor, division: Division) -> LazyTensor:
    """Returns the units of a shared tensor that some of the members keep."""
    before = checkpoint.layout.division(slot, checkpoint.spec)
    assert before is not None
    stored = {unit: place for place, unit in enumerate(union(before.members))}
    return selected(tensor, division.axis, [stored[unit] for unit in union(division.members)])


def _own(checkpoint: Checkpoint, name: str, slot: Slot, member: int) -> LazyTensor:
    """Returns a tensor of the member's network."""
    tensor = checkpoint.tensors[name]
    if name not in checkpoint.shared:
        return _part(checkpoint, slot, tensor, member)
    division = checkpoint.layout.division(slot, checkpoint.spec)
    if division is None or len(set(division.members)) == 1:
        return tensor
    return selected(tensor, division.axis, division.places(shared=True)[member])


def packed(tensors: Sequence[LazyTensor], slot: Slot, division: Division | None) -> LazyTensor:
    """Joins members along their heads or units, one after the other, and stacks what is not divided into them."""
    if division is None and not slot.is_attention:
        shape = (len(tensors), *tensors[0].shape)
        return LazyTensor(shape, tensors[0].kind, lambda: torch.stack([tensor.load() for tensor in tensors]))
    axis = 0 if division is None else division.axis
    shape = tuple(
        sum(tensor.shape[axis] for tensor in tensors) if i == axis else n for i, n in enumerate(tensors[0].shape)
    )
    return LazyTensor(shape, tensors[0].kind, lambda: torch.cat([tensor.load() for tensor in tensors], axis))


def _part(checkpoint: Checkpoint, slot: Slot, tensor: LazyTensor, member: int) -> LazyTensor:
    """Returns what is stored of a member's own in a tensor that members do not share."""
    division = checkpoint.layout.division(slot, checkpoint.spec)
    if division is not None:
        places = division.places(shared=False)[member]
        axis, start = division.axis, places[0] if places else 0
        shape = tuple(len(places) if i == axis else n for i, n in enumerate(tensor.shape))
        return replace(tensor, shape=shape, load=lambda: tensor.load().narrow(axis, start, len(places)))
    if slot.is_attention:  # the output bias keeps its leading axis, of one member now
        return replace(tensor, shape=(1, *tensor.shape[1:]), load=lambda: tensor.load()[member : member + 1])
    return replace(tensor, shape=tensor.shape[1:], load=lambda: tensor.load()[member])


def dense(checkpoint: Checkpoint, slot: Slot, tensor: LazyTensor) -> LazyTensor:
    """Returns a slot's tensor of a single member with every head and unit in its place, and zeros for dropped ones."""
    division = checkpoint.layout.division(slot, checkpoint.spec)
    if division is None:
        return LazyTensor(slot.shape, tensor.kind, lambda: tensor.load().reshape(slot.shape))
    entries = torch.tensor(division.entries(0), dtype=torch.long)

    def load() -> Tensor:
        return torch.zeros(slot.shape, dtype=tensor.dtype).index_copy_(division.axis, entries, tensor.load())

    return LazyTensor(slot.shape, tensor.kind, load)


Embeds = Literal["image", "text"]


def as_embedding(checkpoint: Checkpoint, what: Embeds) -> Checkpoint:
    """Returns the network that embeds images or texts as this one does, members and all.

    The embedding of a zero-shot model is what it compares, at unit length; that of a classifier is what its classifier
    reads. Images of a zero-shot model keep their OOD score, which reads no classes.

    Raises:
        OptionError: the network has no such tower, or labels words.
    """
    tower = "vision" if what == "image" else "text"
    encoder = next((each for each in checkpoint.spec.towers if each.name == tower), None)
    if encoder is None:
        other = "text" if what == "image" else "image"
        raise OptionError(f"`embed` {what}: {checkpoint.name} reads no {what}s: choose {other}")
    before = checkpoint.spec
    if before.embeds:
        return checkpoint
    if encoder.pool == "each":
        raise OptionError(
            f"`embed` {what}: {checkpoint.name} labels words and does not pool them: name the network below it"
        )
    spec = ModelSpec(EMBEDDINGS[tower], (encoder,), projection=before.projection, unit_length=before.embeds_unit)
    table = slots(spec)
    fits = before.classes is None and what == "image"
    return replace(
        checkpoint,
        spec=spec,
        heads={tower: checkpoint.heads[tower]},
        units={tower: checkpoint.units[tower]} if tower in checkpoint.units else {},
        shared=checkpoint.shared & table.keys(),
        tensors={name: checkpoint.tensors[name] for name in table},
        labels=None,
        calibration=Calibration(ood=checkpoint.calibration.ood) if fits else NOT_CALIBRATED,
    )
