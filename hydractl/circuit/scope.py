"""Which heads a search chooses from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hydractl.checkpoint.heads import Head
from hydractl.errors import OptionError


class Scope(NamedTuple):
    """The towers and layers that a search is restricted to, as the command line names them; None is no restriction.

    Attributes:
        towers: names with commas between.
        layers: `A-B`, both included, or one.
    """

    towers: str | None = None
    layers: str | None = None

    def of(self, heads: Iterable[Head]) -> tuple[Head, ...]:
        """The heads within.

        Raises:
            OptionError: `layers` is no range.
        """
        first, last = self._range()
        within = (head for head in heads if first <= head.layer <= last)
        return tuple(head for head in within if not self.towers or head.tower in self.tower_names)

    @property
    def tower_names(self) -> list[str]:
        """The towers it is restricted to; none where it is not."""
        return [name.strip() for name in self.towers.split(",")] if self.towers else []

    def _range(self) -> tuple[float, float]:
        if self.layers is None:
            return 0, float("inf")
        first, dash, last = self.layers.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise OptionError(f"--layers {self.layers}: expected two layers as in 0-5, both included, or one")
        return int(first), int(last or first)
