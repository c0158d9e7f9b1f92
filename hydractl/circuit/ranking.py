"""The request of a search, the heads that it chooses from, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

from hydractl.bounds import LAYERS, whole
from hydractl.checkpoint.heads import Head, KeptHeads, member_heads, number_of_heads, require_heads
from hydractl.errors import OptionError
from hydractl.schema import Checked

if TYPE_CHECKING:
    from hydractl.circuit.objective import Measure, Objective

#: Heads that were measured with each of them off, on so many samples.
Group = tuple[Head, ...]
Progress = Callable[[Group, int], None]


class DroppedHead(NamedTuple):
    """A head that was dropped, and how the network does without it and all before it."""

    head: Head
    measure: Measure


@dataclass(frozen=True)
class Ranking:
    """The heads dropped for one objective, first dropped first; `baseline` is the network with all of them."""

    objective: Objective
    baseline: Measure | None = None
    steps: tuple[DroppedHead, ...] = ()

    @property
    def dropped(self) -> frozenset[Head]:
        return frozenset(step.head for step in self.steps)

    def line(self, number: int, measured: str) -> str:
        """Returns a step as a line of text; see `Task.measured`."""
        step = self.steps[number]
        auroc = step.measure.auroc
        detected = "" if auroc is None else f"  AUROC {auroc:.4f}"
        return f"{self.objective}  {number + 1:3}  {step.head}  {measured} {step.measure.accuracy:.4f}{detected}"

    def summary(self, measured: str) -> str:
        """Returns the cost of the dropped heads as a line of text; see `Task.measured`."""
        if self.baseline is None or not self.steps:
            return "no head"
        first, last = self.baseline, self.steps[-1].measure
        before, after = first.auroc, last.auroc
        detected = "" if before is None or after is None else f", AUROC {before:.4f} to {after:.4f}"
        return f"{len(self.steps)} heads, {measured} {first.accuracy:.4f} to {last.accuracy:.4f}{detected}"


@dataclass(frozen=True)
class Search:
    """The request of a search: `budget` heads among the candidates, which stand in candidate order."""

    candidates: tuple[Head, ...]
    budget: int

    def networks(self, done: int) -> int:
        """Counts the networks with a head off that are measured after so many heads."""
        return sum(len(self.candidates) - gone for gone in range(done, self.budget))

    def left(self, dropped: frozenset[Head]) -> list[Head]:
        """Returns the candidates of the round after these have left, in candidate order."""
        return [head for head in self.candidates if head not in dropped]


ALL = "all"


#: A short text, also in a stranger's file.
Named = Annotated[str, Checked(max_length=100)]


@dataclass(frozen=True)
class Restriction:
    """The towers and layers that a search is restricted to, as options name them; None is no restriction."""

    towers: Named | None = None  # names with commas between
    layers: Named | None = None  # `A-B`, both included, or one

    def among(self, heads: Iterable[Head]) -> tuple[Head, ...]:
        """Returns the heads that the restricted search may drop."""
        first, last = self._range()
        within = (head for head in heads if first <= head.layer <= last)
        return tuple(head for head in within if not self.towers or head.tower in names_of(self.towers))

    def of_member(self, kept: KeptHeads) -> tuple[Head, ...]:
        """Returns the heads of a single-member model that a search chooses from, in candidate order.

        Raises:
            OptionError: the model has no such tower, or no head in those layers.
        """
        require_heads(kept, "the model")
        if self.towers:
            require_towers(self.towers, kept)
        heads = self.among(member_heads(kept, 0))
        if not heads:
            raise OptionError(f"`layers` {self.layers}: the model has no heads there: name other layers")
        return heads

    def _range(self) -> tuple[float, float]:
        if self.layers is None:
            return 0, float("inf")
        first, dash, last = self.layers.partition("-")
        lowest, highest = (whole(end, 0, LAYERS) for end in (first, last if dash else first))
        if lowest is None or highest is None:
            raise OptionError(f"`layers` {self.layers}: expected one layer, or two as in 0-5 (both included)")
        return lowest, highest


def names_of(towers: str) -> list[str]:
    """Returns the towers that are named with commas between."""
    return [name.strip() for name in towers.split(",")]


def require_towers(towers: str, kept: KeptHeads) -> list[str]:
    """Returns the towers that are named with commas between; raises OptionError if the model lacks one."""
    if unknown := [name for name in names_of(towers) if name not in kept]:
        raise OptionError(f"`towers` {towers}: the model has no {unknown[0]} tower, only {' and '.join(kept)}")
    return names_of(towers)


def heads_to_rank(budget: int | str, candidates: int) -> int:
    """Returns the number of heads in a budget: a number, a share such as `33%`, or `all`."""
    if str(budget) == ALL:
        return candidates
    count = number_of_heads(budget, candidates)
    if count is None or count < 1:
        raise OptionError(f"`budget` {budget}: expected 1 to {candidates} heads, a share as in 33%, or all")
    return count
