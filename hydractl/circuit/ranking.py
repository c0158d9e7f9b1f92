"""What a search is asked for, and what it has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hydractl.checkpoint.heads import Head, layer_budgets
from hydractl.circuit.objective import Measure, Objective

TieBreak = Literal["order", "nll"]
SearchMode = Literal["exact", "screened", "shortlist", "headmap"]

#: How the network does with each of some candidates off, and under None with all of them on.
Measures = Mapping[Head | None, Measure]


@dataclass(frozen=True)
class Step:
    """A head that was dropped, and how the network does without it and all before it.

    Of heads that left together, each is measured without the others.
    """

    head: Head
    measure: Measure


@dataclass(frozen=True)
class Shortcut:
    """How far a search went by less than exact scores of all candidates.

    Attributes:
        kind: the `margin` of a screened search, or the `gap` between the best of the first shortlist and of all heads.
        slack: how large that is in the objective's whole numbers; from the first step, which scores all exactly.
        checked: how many candidates got exact scores, round by round.
    """

    kind: Literal["margin", "gap"]
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


@dataclass(frozen=True)
class Plan:
    """What is searched for: `budget` heads among the candidates, which stand in candidate order.

    Attributes:
        heads_per_step: above 1, a round drops so many of its best at once, which is no longer Algorithm 1.
        mode: `exact` measures every candidate in every round. `screened` does so in half precision, and again exactly
            for those that come near the best. `shortlist` measures the `shortlist` candidates that a gate's gradient
            deems least needed. `headmap` goes layer by layer, each giving up its share of the budget at once.
    """

    candidates: tuple[Head, ...]
    budget: int
    tie_break: TieBreak = "order"
    heads_per_step: int = 1
    mode: SearchMode = "exact"
    shortlist: int = 1

    def drops(self, done: int) -> int:
        """How many heads leave in the round after so many have left."""
        if self.mode == "headmap":
            return self._layer(done)[1]
        return min(self.heads_per_step, self.budget - done)

    def turn(self, done: int) -> tuple[Head, ...]:
        """Whose turn it is after so many heads have left, whether or not they have left themselves."""
        if self.mode != "headmap":
            return self.candidates
        place, _ = self._layer(done)
        return tuple(head for head in self.candidates if (head.tower, head.layer) == place)

    def left(self, dropped: frozenset[Head]) -> list[Head]:
        """The candidates of the round after these have left, in candidate order."""
        return [head for head in self.turn(len(dropped)) if head not in dropped]

    def passes(self, done: int) -> float:
        """How often a candidate is measured on average after so many have left, those near a screen's best aside."""
        if self.mode == "shortlist" and done:
            return min(1.0, self.shortlist / (len(self.candidates) - done))
        return 2.0 if self.mode == "screened" and not done else 1.0

    def _layer(self, done: int) -> tuple[tuple[str, int], int]:
        """The tower and layer whose turn it is after so many heads, and how many it gives up."""
        for place, share in layer_budgets(self.candidates, self.budget).items():
            if done < share:
                return place, share
            done -= share
        raise ValueError(f"{self.budget} heads have left already")
