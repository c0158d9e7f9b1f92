"""What pruning and fusing changed about a network, in a line for whoever waits for the command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, KeptHeads, member_heads, without
from hydractl.checkpoint.slots import all_heads, parameter_count, stored_shape
from hydractl.evaluation.cost import multiply_adds
from hydractl.report.columns import Column

COUNT = Column("", (), "count")


def pruning_line(checkpoint: Checkpoint, dropped: Sequence[Head], path: Path | None) -> str:
    """How many heads a network of one member lost, and what it is smaller by.

    Args:
        checkpoint: without them.
        path: of its file, if it was written.
    """
    kept = member_heads(checkpoint.heads, 0)
    before, after = _alone(checkpoint, [*kept, *dropped]), _alone(checkpoint, kept)
    return _line(f"heads {len(kept) + len(dropped)} -> {len(kept)}", before, after, path)


def fusing_line(checkpoint: Checkpoint, path: Path | None) -> str:
    """What a network of several members is smaller by than these are by themselves.

    Args:
        path: of its file, if it was written.
    """
    kept = [member_heads(checkpoint.heads, member) for member in range(checkpoint.members)]
    alone = [_alone(checkpoint, heads) for heads in kept]
    apart = _Size(sum(one.parameters for one in alone), sum(one.multiply_adds for one in alone))
    said = f"{checkpoint.members} members of {'+'.join(str(len(heads)) for heads in kept)} heads"
    return _line(said, apart, _size(checkpoint, checkpoint.heads, checkpoint.shared), path)


@dataclass(frozen=True)
class _Size:
    parameters: int
    multiply_adds: int


def _alone(checkpoint: Checkpoint, kept: Iterable[Head]) -> _Size:
    """Of a network of one member with these heads."""
    every = all_heads(checkpoint.spec)
    heads = without(every, set(member_heads(every, 0)).difference(kept))
    return _size(checkpoint, heads, frozenset(checkpoint.slots()))


def _size(checkpoint: Checkpoint, heads: KeptHeads, shared: frozenset[str]) -> _Size:
    spec = checkpoint.spec
    shapes = {name: stored_shape(slot, spec, heads, name in shared) for name, slot in checkpoint.slots().items()}
    return _Size(parameter_count(shapes), multiply_adds(spec, heads, shared))


def _line(heads: str, before: _Size, after: _Size, path: Path | None) -> str:
    parts = [heads]
    for name in ("parameters", "multiply_adds"):
        was, now = getattr(before, name), getattr(after, name)
        parts.append(f"{name.replace('_', '-')} {COUNT.show(was)} -> {COUNT.show(now)} ({now / was:.2f} x)")
    if path is not None:
        parts.append(f"file {COUNT.show(path.stat().st_size)}B")
    return ", ".join(parts)
