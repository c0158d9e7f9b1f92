"""Which heads a search chooses from, and how many of them it ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hydractl.bounds import LAYERS, whole
from hydractl.checkpoint.heads import Head, KeptHeads, member_heads, number_of_heads, require_heads
from hydractl.errors import OptionError

ALL = "all"


class Restriction(NamedTuple):
    """The towers and layers that a search is restricted to, as options name them; None is no restriction.

    Attributes:
        towers: names with commas between.
        layers: `A-B`, both included, or one.
    """

    towers: str | None = None
    layers: str | None = None

    def among(self, heads: Iterable[Head]) -> tuple[Head, ...]:
        """Those of the heads that a search so restricted may drop.

        Raises:
            OptionError: `layers` is no range.
        """
        first, last = self._range()
        within = (head for head in heads if first <= head.layer <= last)
        return tuple(head for head in within if not self.towers or head.tower in names_of(self.towers))

    def of_member(self, kept: KeptHeads) -> tuple[Head, ...]:
        """The heads of a single-member model that a search chooses from, in candidate order.

        Raises:
            OptionError: the model has no such tower, or no head in those layers.
        """
        require_heads(kept, "the model")
        if self.towers:
            require_towers(self.towers, kept)
        found = self.among(member_heads(kept, 0))
        if not found:
            raise OptionError(f"`layers` {self.layers}: the model has no head there: name others")
        return found

    def _range(self) -> tuple[float, float]:
        if self.layers is None:
            return 0, float("inf")
        first, dash, last = self.layers.partition("-")
        lowest, highest = (whole(end, 0, LAYERS) for end in (first, last if dash else first))
        if lowest is None or highest is None:
            raise OptionError(f"`layers` {self.layers}: expected two layers as in 0-5, both included, or one")
        return lowest, highest


def names_of(towers: str) -> list[str]:
    """The towers that are named with commas between."""
    return [name.strip() for name in towers.split(",")]


def require_towers(towers: str, kept: KeptHeads) -> list[str]:
    """The towers that are named with commas between.

    Raises:
        OptionError: the model lacks one.
    """
    if unknown := [name for name in names_of(towers) if name not in kept]:
        raise OptionError(f"`towers` {towers}: the model has no {unknown[0]} tower, only {' and '.join(kept)}")
    return names_of(towers)


def heads_to_rank(budget: int | str, candidates: int) -> int:
    """How many heads a budget asks for: a number, a share such as `33%`, or `all`.

    Raises:
        OptionError: none, or more than there are candidates.
    """
    if str(budget) == ALL:
        return candidates
    count = number_of_heads(budget, candidates)
    if count is None or count < 1:
        raise OptionError(
            f"`budget` {budget}: expected 1 to {candidates}, the heads there are, a share as in 33%, or all"
        )
    return count
