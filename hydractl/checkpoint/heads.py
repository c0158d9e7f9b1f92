"""Addresses of attention heads, always in the numbering of the original checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

#: Per tower, per layer, per member: the heads that member keeps there, ascending.
KeptHeads = Mapping[str, tuple[tuple[tuple[int, ...], ...], ...]]


class Head(NamedTuple):
    """One attention head; sorts in candidate order (tower, layer, head), vision before text."""

    tower: str
    layer: int
    head: int

    @property
    def order(self) -> tuple[int, int, int]:
        return TOWERS.index(self.tower), self.layer, self.head

    def __str__(self) -> str:
        return f"{self.tower} layer {self.layer} head {self.head}"


TOWERS = ("vision", "text")


def in_candidate_order(heads: Iterable[Head]) -> list[Head]:
    """The heads sorted by (tower, layer, head), the order in which Algorithm 1 visits candidates."""
    return sorted(heads, key=lambda head: head.order)


def member_heads(kept: KeptHeads, member: int) -> list[Head]:
    """All heads that one member keeps, in candidate order."""
    return in_candidate_order(
        Head(tower, layer, head)
        for tower, layers in kept.items()
        for layer, members in enumerate(layers)
        for head in members[member]
    )


def without(kept: KeptHeads, gone: Set[Head]) -> KeptHeads:
    """The kept heads of every member less those that are `gone`."""
    return {
        tower: tuple(
            tuple(tuple(head for head in heads if Head(tower, layer, head) not in gone) for heads in members)
            for layer, members in enumerate(layers)
        )
        for tower, layers in kept.items()
    }
