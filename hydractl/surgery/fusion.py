"""Packs members into one network: attention side by side, the rest averaged or kept per member ([HE] 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import TOWERS
from hydractl.checkpoint.slots import GROUPS, Slot, slots
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import CheckpointError, OptionError
from hydractl.surgery.numbers import rounded, with_dtype
from hydractl.surgery.slicing import packed, split_members

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
            Default: nothing, or the text tower of a zero-shot model, which costs nothing, because class embeddings
            are computed once.
        dtype: that of the result. Default: the members' own.

    Raises:
        CheckpointError: members differ in family, sizes, labels, preprocessing or dtype; the first difference is named.
        OptionError: fewer than two members, or an unknown group.
    """
    members = [member for checkpoint in checkpoints for member in split_members(checkpoint)]
    if len(members) < 2:
        raise OptionError("fuse needs at least two members")
    for member in members[1:]:
        _require_agreement(members[0], member)
    first = members[0]
    zero_shot = first.spec.task == "zero-shot"
    kept_separate = parse_separate(("text",) if separate is None and zero_shot else separate or ())
    heads = {
        tower: tuple(
            tuple(member.heads[tower][layer][0] for member in members) for layer in range(len(first.heads[tower]))
        )
        for tower in first.heads
    }
    tensors: dict[str, LazyTensor] = {}
    shared: set[str] = set()
    for names in _units(first.spec):
        fused, is_shared = _fuse_unit(members, names, kept_separate, dtype)
        tensors |= fused
        shared |= set(names) if is_shared else set()
    # A temperature was fitted to one member; the mean of several is calibrated differently.
    temperature = first.temperature if len(members) == first.members else None
    whole = replace(first, heads=heads, shared=frozenset(shared), tensors=tensors, temperature=temperature, ood=None)
    return with_dtype(whole, dtype)


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
                f"`separate` {name}: unknown: choose all, none, a tower, or of {', '.join(GROUPS)} (vision.mlp ...)"
            )
    return frozenset(chosen)


def _require_agreement(first: Checkpoint, other: Checkpoint) -> None:
    if first.family != other.family:
        _differ(first, other, "family", (first.family, other.family))
    if first.spec != other.spec:
        _differ(first, other, *_first_difference(first.spec, other.spec))
    if first.labels != other.labels:
        _differ(first, other, "labels", (first.labels, other.labels))
    if first.preprocessing != other.preprocessing:
        names = first.preprocessing.keys() | other.preprocessing.keys()
        name = min(n for n in names if first.preprocessing.get(n) != other.preprocessing.get(n))
        raise CheckpointError(f"{other.name}: its preprocessing ({name}) differs from that of {first.name}")
    for name, tensor in first.tensors.items():
        if tensor.dtype != other.tensors[name].dtype:
            _differ(first, other, f"dtype of {name}", (tensor.dtype, other.tensors[name].dtype))


def _differ(first: Checkpoint, other: Checkpoint, what: str, values: tuple[object, object]) -> None:
    a, b = values
    raise CheckpointError(f"{other.name}: {what} is {b}, but {a} in {first.name}: members must agree")


def _first_difference(a: object, b: object, where: str = "") -> tuple[str, tuple[object, object]]:
    """Returns name and values of the first field in which two specs differ."""
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return next(_first_difference(x, y, where) for x, y in zip(a, b, strict=True) if x != y)
    if type(a) is type(b) and hasattr(a, "__dataclass_fields__"):
        name = getattr(a, "name", "")
        field = next(f.name for f in fields(a) if getattr(a, f.name) != getattr(b, f.name))  # type: ignore[arg-type]
        return _first_difference(getattr(a, field), getattr(b, field), f"{where}{name} {field}".strip() + " ")
    return where.strip(), (a, b)


def _units(spec: ModelSpec) -> Iterable[list[str]]:
    """Groups the names of tensors that can only be shared together: those of one layer's attention, or a single one."""
    units: dict[object, list[str]] = {}
    for name, slot in slots(spec).items():
        units.setdefault((slot.tower, slot.layer) if slot.is_attention else name, []).append(name)
    return units.values()


def _fuse_unit(
    members: Sequence[Checkpoint], names: Sequence[str], separate: frozenset[str], dtype: torch.dtype | None
) -> tuple[dict[str, LazyTensor], bool]:
    """Returns the tensors of one unit, and whether all members share them."""
    table = slots(members[0].spec)
    slot = table[names[0]]
    if _identical(members, names, slot):
        return {name: members[0].tensors[name] for name in names}, True
    if slot.group in MERGED and not separate & {slot.group, f"{slot.tower}.{slot.group}"}:
        return {name: _mean([member.tensors[name] for member in members], dtype) for name in names}, True
    return {name: packed([member.tensors[name] for member in members], table[name]) for name in names}, False


def _identical(members: Sequence[Checkpoint], names: Sequence[str], slot: Slot) -> bool:
    if slot.is_attention and slot.tower is not None and slot.layer is not None:
        kept = [member.heads[slot.tower][slot.layer] for member in members]
        if any(heads != kept[0] for heads in kept):
            return False
    for name in names:
        first = members[0].tensors[name].load()
        if any(not _same_bits(first, member.tensors[name].load()) for member in members[1:]):
            return False
    return True


def _same_bits(a: Tensor, b: Tensor) -> bool:
    # torch.equal calls 0.0 and -0.0 equal; a stored tensor is the same only if its bytes are.
    first, second = (tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b))
    return a.shape == b.shape and torch.equal(first, second)


def _mean(tensors: Sequence[LazyTensor], dtype: torch.dtype | None) -> LazyTensor:
    result = dtype or tensors[0].dtype

    def load() -> Tensor:
        total = tensors[0].load().double()
        for tensor in tensors[1:]:
            total += tensor.load()
        return rounded(total / len(tensors), result)

    return LazyTensor(tensors[0].shape, result, load)
