"""What a search is asked for, and what it has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from hydractl.checkpoint.heads import Head

if TYPE_CHECKING:
    from hydractl.circuit.modes import Mode
    from hydractl.circuit.objective import Measure, Objective

TieBreak = Literal["order", "nll"]


@dataclass(frozen=True)
class Step:
    """A head that was dropped, and how the network does without it and all before it.

    Heads that left in the same round were each measured with the others still on.
    """

    head: Head
    measure: Measure


@dataclass(frozen=True)
class Shortcut:
    """How far a search went by less than exact scores of all candidates.

    Attributes:
        kind: what the slack is, e.g. the `margin` of a screened search.
        slack: in the objective's whole numbers; known after the first step, which scores all candidates exactly.
        checked: how many candidates got exact scores, round by round.
    """

    kind: str
    slack: int
    checked: tuple[int, ...]


@dataclass(frozen=True)
class Ranking:
    """The heads dropped for one objective, first dropped first; `baseline` is the network with all of them."""

    objective: Objective
    baseline: Measure | None = None
    steps: tuple[Step, ...] = ()
    shortcut: Shortcut | None = None

    @property
    def dropped(self) -> frozenset[Head]:
        return frozenset(step.head for step in self.steps)

    def line(self, number: int) -> str:
        """What a step found, in a line of text."""
        step = self.steps[number]
        auroc = step.measure.auroc
        detected = "" if auroc is None else f"  AUROC {auroc:.4f}"
        return f"{self.objective}  {number + 1:3}  {step.head}  accuracy {step.measure.accuracy:.4f}{detected}"

    @property
    def summary(self) -> str:
        """What dropping its heads has cost, in a line of text."""
        if self.baseline is None or not self.steps:
            return "no head"
        first, last = self.baseline, self.steps[-1].measure
        before, after = first.auroc, last.auroc
        detected = "" if before is None or after is None else f", AUROC {before:.4f} to {after:.4f}"
        return f"{len(self.steps)} heads, accuracy {first.accuracy:.4f} to {last.accuracy:.4f}{detected}"

    @property
    def slack(self) -> float:
        """The slack of its shortcut in units of the objective; 0 where it took none."""
        if self.shortcut is None or self.baseline is None:
            return 0.0
        return self.shortcut.slack / self.baseline.span(self.objective)


class Round(NamedTuple):
    """One round of a search, as far as it can be foreseen: which heads will have left, nobody knows.

    Attributes:
        heads: those that the round chooses among, in candidate order; some may have left before.
        left: how many of them have not.
        drops: how many leave in this round.
        passes: how often each is measured, on average and as far as that can be foreseen.
    """

    heads: tuple[Head, ...]
    left: int
    drops: int
    passes: float = 1.0


@dataclass(frozen=True)
class Search:
    """What is searched for: `budget` heads among the candidates, which stand in candidate order.

    Attributes:
        mode: how a round is made up, and how its candidates are measured.
        tie_break: among equals the first in candidate order, or the one with the lowest ID loss.
    """

    candidates: tuple[Head, ...]
    budget: int
    mode: Mode
    tie_break: TieBreak = "order"

    def round(self, done: int) -> Round:
        """The round after so many heads have left."""
        return self.mode.round(self, done)

    def left(self, dropped: frozenset[Head]) -> list[Head]:
        """The candidates of the round after these have left, in candidate order."""
        return [head for head in self.round(len(dropped)).heads if head not in dropped]


def greedy_round(search: Search, done: int, heads_per_step: int) -> Round:
    """Returns a round of Algorithm 1: every head that is left is a candidate, and the best of them leave."""
    drops = min(heads_per_step, search.budget - done)
    return Round(search.candidates, len(search.candidates) - done, drops)
