"""Packs members into one network: attention side by side, the rest averaged or kept per member ([HE] 4.2)."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import TOWERS
from hydractl.checkpoint.layout import Division, Layout, side_by_side
from hydractl.checkpoint.output import first_change
from hydractl.checkpoint.slots import GROUPS, Slot, slots
from hydractl.checkpoint.spec import ModelSpec, spec_to_json
from hydractl.checkpoint.tensors import LazyTensor, kind_of, rounded
from hydractl.errors import CheckpointError, OptionError
from hydractl.surgery.slicing import packed, split_members, with_dtype
from hydractl.text import composed_all

#: Averaged over members unless kept separate; attention and what stands behind the last layer never is.
MERGED = frozenset({"mlp", "norm", "embeddings"})


def fuse(
    checkpoints: Sequence[Checkpoint], separate: Iterable[str] | None = None, dtype: torch.dtype | None = None
) -> Checkpoint:
    """Returns one checkpoint of all members, in the order given; a fused checkpoint adds all of its members.

    Tensors that are bit-identical in all members are stored once, unchanged. Others are averaged in float64 and
    rounded once (MLP, norms, embeddings), or stored per member (attention, pooler, projection,
    classifier, and the groups in `separate`). Tensors are compared now and read again when written.

    Args:
        checkpoints: of one or more members each, at least two members together.
        separate: groups to keep per member: of `GROUPS`, "all", `text.mlp` for one tower, `text` for a whole tower.
            Default: refitted MLPs, and the text tower of a zero-shot model, which costs nothing, because class
            embeddings are computed once.
        dtype: that of the result, whatever the members' are. Default: the members' own.

    Raises:
        CheckpointError: members differ in family, sizes, labels, preprocessing or dtype; the first difference is named.
        OptionError: fewer than two members, or an unknown group.
    """
    members = _members(checkpoints, dtype)
    first = members[0]
    others = [tower.name for tower in first.spec.towers[1:]]  # of a zero-shot model its text tower
    kept_separate = parse_separate(others if separate is None else separate)
    layout = side_by_side(first.spec, [member.layout for member in members], frozenset())
    tensors: dict[str, LazyTensor] = {}
    shared: set[str] = set()

    def alike(name: str) -> bool:
        division = layout.division(first.slots()[name], first.spec)
        return _identical([member.tensors[name] for member in members], first.slots()[name], division)

    for names in _together(first.spec):
        merged = _merges(first, names[0], kept_separate) and not (separate is None and _refitted(names[0], alike))
        fused, is_shared = _fuse(members, layout, names, merged=merged, dtype=dtype)
        tensors |= fused
        shared |= set(names) if is_shared else set()
    return with_dtype(first.with_layout(replace(layout, shared=frozenset(shared)), first.spec, tensors), dtype)


def fused_layout(members: Sequence[Checkpoint], marks: Sequence[Mapping[str, bytes]]) -> Layout:
    """Returns the layout of members of one member each, which keep all MLP units, fused with everything separate.

    Args:
        marks: of each member, a mark of each tensor's numbers, by name; no tensor is read.
    """
    spec = members[0].spec
    alike = {name for name in marks[0] if len({mark.get(name) for mark in marks}) == 1}
    shared = frozenset(name for names in _together(spec) if alike.issuperset(names) for name in names)
    return side_by_side(spec, [member.layout for member in members], shared)


def soup(checkpoints: Sequence[Checkpoint], dtype: torch.dtype | None = None) -> Checkpoint:
    """Returns one network of the members' mean weights, attention and classifier too: a uniform model soup.

    Source: Wortsman et al. 2022 (arXiv 2203.05482), for networks that were fine-tuned from one network.

    Args:
        checkpoints: of one or more members each, at least two members together.
        dtype: that of the result, whatever the members' are. Default: the members' own.

    Raises:
        CheckpointError: members differ in what fused members must agree in, or in the heads or units that they keep.
        OptionError: fewer than two members.
    """
    members = _members(checkpoints, dtype)
    require_like(members)
    first = members[0]
    tensors: dict[str, LazyTensor] = {}
    for name in slots(first.spec):
        tensors |= _fuse(members, first.layout, [name], merged=True, dtype=dtype)[0]
    return with_dtype(first.with_layout(first.layout, first.spec, tensors), dtype)


def _members(checkpoints: Sequence[Checkpoint], dtype: torch.dtype | None) -> list[Checkpoint]:
    """Returns all members as networks of their own, which agree in what they must, ready for a mean in `dtype`."""
    members = [member for checkpoint in checkpoints for member in split_members(checkpoint)]
    if len(members) < 2:
        raise OptionError("fuse needs at least two members: name two models or more")
    kinds = {tuple(tensor.kind for _, tensor in sorted(member.tensors.items())) for member in members}
    if dtype is not None and len(kinds) > 1:
        # Every number fits float64, so the result is still rounded once.
        members = [with_dtype(member, torch.float64) for member in members]
    require_agreement(members)
    return members


def parse_separate(names: Iterable[str]) -> frozenset[str]:
    """Returns the groups to keep per member, each as `group` or `tower.group`.

    "all" stands for every group, "none" for no group, and a tower for every group of it.

    Raises:
        OptionError: an unknown group, or "none" beside others.
    """
    chosen = set(names)
    if chosen == {"none"}:
        return frozenset()
    if "all" in chosen:
        chosen = set(GROUPS)
    for tower in chosen & set(TOWERS):
        chosen = (chosen - {tower}) | {f"{tower}.{group}" for group in GROUPS}
    for name in chosen:
        tower, _, group = name.rpartition(".")
        if group not in GROUPS or tower not in ("", *TOWERS):
            raise OptionError(
                f"`separate` {name}: unknown: choose all, none, a tower, or among {', '.join(GROUPS)} (vision.mlp ...)"
            )
    return frozenset(chosen)


def require_agreement(checkpoints: Sequence[Checkpoint]) -> None:
    """Raises CheckpointError if networks differ in what members must agree in; names the first difference."""
    first, *others = checkpoints
    for other in others:
        ours, theirs = (json.loads(json.dumps(_agreed(each))) for each in (first, other))
        if (change := first_change(ours, theirs)) is not None:
            what, old, new = change
            convert = "give `dtype`, to which all are converted"
            remedy = convert if what.startswith("dtype") else "members must agree"
            raise CheckpointError(f"{other.name}: {what} is {new}, but {old} in {first.name}: {remedy}")


def require_like(checkpoints: Sequence[Checkpoint]) -> None:
    """Raises CheckpointError if networks keep different heads or MLP units, so that their weights have no mean."""
    first, *others = [member for checkpoint in checkpoints for member in split_members(checkpoint)]
    for other in others:
        if (other.heads, other.units) != (first.heads, first.units):
            kept = "heads" if other.heads != first.heads else "MLP units"
            raise CheckpointError(
                f"{other.name}: keeps other {kept} than {first.name}: only networks of one shape can be averaged"
            )


def _agreed(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns what members have in common, as plain JSON."""
    return {
        "family": checkpoint.family,
        **spec_to_json(checkpoint.spec),
        "labels": composed_all(checkpoint.labels),
        "preprocessing": checkpoint.preprocessing,
        "dtype": {name: tensor.kind for name, tensor in sorted(checkpoint.tensors.items())},
    }


def _together(spec: ModelSpec) -> Iterable[list[str]]:
    """Groups the names of tensors that can only be shared together: those of one layer's attention, or a single one."""
    groups: dict[object, list[str]] = {}
    for name, slot in slots(spec).items():
        groups.setdefault((slot.tower, slot.layer) if slot.is_attention else name, []).append(name)
    return groups.values()


def _merges(checkpoint: Checkpoint, name: str, separate: frozenset[str]) -> bool:
    slot = slots(checkpoint.spec)[name]
    return slot.group in MERGED and not separate & {slot.group, f"{slot.tower}.{slot.group}"}


def _refitted(name: str, alike: Callable[[str], bool]) -> bool:
    """Returns True for a last map behind a first that all members share: a refit made them differ, no training did."""
    mlp, behind, _ = name.partition(".fc2.")
    return bool(behind) and alike(f"{mlp}.fc1.weight")


def _fuse(
    members: Sequence[Checkpoint], layout: Layout, names: Sequence[str], *, merged: bool, dtype: torch.dtype | None
) -> tuple[dict[str, LazyTensor], bool]:
    """Returns the tensors under some names, and whether all members share them; some are merged where they differ."""
    spec = members[0].spec
    table = slots(spec)
    divided = [(name, table[name], layout.division(table[name], spec)) for name in names]
    by_name = {name: [member.tensors[name] for member in members] for name in names}
    if all(_identical(by_name[name], slot, division) for name, slot, division in divided):
        return {name: _joined(by_name[name], division) for name, _, division in divided}, True
    if merged:
        return {name: _mean(by_name[name], division, dtype) for name, _, division in divided}, True
    return {name: packed(by_name[name], slot, division) for name, slot, division in divided}, False


def _identical(tensors: Sequence[LazyTensor], slot: Slot, division: Division | None) -> bool:
    """Tells whether members hold the same bits; of units, the same wherever several members keep one."""
    if division is None or len(set(division.members)) == 1:
        first = tensors[0].load()
        return all(_same_bits(first, tensor.load()) for tensor in tensors[1:])
    if slot.is_attention:
        return False
    joined = _joined(tensors, division).load()
    places = map(torch.tensor, division.places(shared=True))
    return all(
        _same_bits(joined.index_select(division.axis, there.long()), tensor.load())
        for there, tensor in zip(places, tensors, strict=True)
    )


def _joined(tensors: Sequence[LazyTensor], division: Division | None) -> LazyTensor:
    """Returns one tensor of all units, each as the first member that keeps it has it; undivided, the first tensor."""
    if division is None or len(set(division.members)) == 1:
        return tensors[0]
    shape = _shape(tensors[0], division)

    def load() -> Tensor:
        joined = torch.empty(shape, dtype=tensors[0].dtype)
        for places, tensor in reversed(list(zip(division.places(shared=True), tensors, strict=True))):
            joined.index_copy_(division.axis, torch.tensor(places, dtype=torch.long), tensor.load())
        return joined

    return LazyTensor(shape, tensors[0].kind, load)


def _shape(tensor: LazyTensor, division: Division) -> tuple[int, ...]:
    return tuple(division.size(shared=True) if i == division.axis else n for i, n in enumerate(tensor.shape))


def _same_bits(a: Tensor, b: Tensor) -> bool:
    # torch.equal calls 0.0 and -0.0 equal; a stored tensor is the same only if its bytes are.
    first, second = (tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b))
    return a.shape == b.shape and torch.equal(first, second)


def _mean(tensors: Sequence[LazyTensor], division: Division | None, dtype: torch.dtype | None) -> LazyTensor:
    """Returns the mean of members' tensors, and of a unit's entries over the members that keep it."""
    result = dtype or tensors[0].dtype
    if division is None or len(set(division.members)) == 1:
        return LazyTensor(tensors[0].shape, kind_of(result), lambda: rounded(_sum(tensors) / len(tensors), result))
    shape, axis = _shape(tensors[0], division), division.axis

    def load() -> Tensor:
        total, counts = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape[axis])
        for there, tensor in zip(map(torch.tensor, division.places(shared=True)), tensors, strict=True):
            total.index_add_(axis, there.long(), tensor.load().double())
            counts[there.long()] += 1
        return rounded(total / counts.view(-1, *(1,) * (total.ndim - axis - 1)), result)

    return LazyTensor(shape, kind_of(result), load)


def _sum(tensors: Sequence[LazyTensor]) -> Tensor:
    total = tensors[0].load().double()
    for tensor in tensors[1:]:
        total += tensor.load()
    return total
