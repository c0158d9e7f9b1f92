"""Addresses of attention heads and MLP units, always in the numbering of the original checkpoint."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

from hydractl.errors import OptionError

#: Per tower, per layer, per member: the heads that member keeps there, ascending.
KeptHeads = Mapping[str, tuple[tuple[tuple[int, ...], ...], ...]]


class Head(NamedTuple):
    """One attention head."""

    tower: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.tower} layer {self.layer} head {self.head}"


class Unit(NamedTuple):
    """One unit of an MLP."""

    tower: str
    layer: int
    unit: int

    def __str__(self) -> str:
        return f"{self.tower} layer {self.layer} unit {self.unit}"


Piece = TypeVar("Piece", Head, Unit)
TOWERS = ("vision", "text")


def in_candidate_order(pieces: Iterable[Piece]) -> list[Piece]:
    """Returns heads or units sorted by (tower, layer, number), the order in which Algorithm 1 visits candidates.

    Vision comes before text.
    """
    return sorted(pieces, key=lambda piece: (TOWERS.index(piece.tower), *piece[1:]))


def member_heads(kept: KeptHeads, member: int) -> list[Head]:
    """Returns all heads that one member keeps, in candidate order."""
    return in_candidate_order(
        Head(tower, layer, head)
        for tower, layers in kept.items()
        for layer, members in enumerate(layers)
        for head in members[member]
    )


def without(kept: KeptHeads, gone: Set[Head]) -> KeptHeads:
    """Returns the kept heads of every member without those that are `gone`."""
    return {
        tower: tuple(
            tuple(tuple(head for head in heads if Head(tower, layer, head) not in gone) for heads in members)
            for layer, members in enumerate(layers)
        )
        for tower, layers in kept.items()
    }


def layer_budgets(pieces: Sequence[Piece], budget: int) -> dict[tuple[str, int], int]:
    """Returns the number of heads or units that each (tower, layer) gives up, such that layers differ by one at most.

    Earlier layers give the extra ones; a layer without any left leaves its share to the others.
    """
    available = Counter((piece.tower, piece.layer) for piece in in_candidate_order(pieces))
    shares = dict.fromkeys(available, 0)
    left = budget
    while left:
        for layer in shares:
            if left and shares[layer] < available[layer]:
                shares[layer] += 1
                left -= 1
    return shares


def require_heads(kept: KeptHeads, name: str) -> None:
    """Raises OptionError if a network of one member has no heads left; `name` is for the message."""
    if not member_heads(kept, 0):
        raise OptionError(f"{name}: has no heads left: name a network with heads")


def number_of_heads(budget: int | str, heads: int) -> int | None:
    """Returns the heads of a budget, a number or a share such as `33%` or `26.7%`; None if neither, or too large."""
    text = str(budget)
    if isinstance(budget, bool) or not re.fullmatch(r"[0-9]{1,9}((\.[0-9]{1,9})?%)?", text):
        return None
    count = round(float(text[:-1]) * heads / 100) if text.endswith("%") else int(text)
    return count if count <= heads else None
