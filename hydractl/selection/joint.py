"""Joint search: in turn each member drops the head without which the mean of all members' probabilities is best.

That is the paper's greedy search ([HE] D.1.2, Algorithm 1) of several networks at once, measured by what they say
together; so it takes as long as that many searches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hydractl.checkpoint.heads import Head
from hydractl.errors import OptionError
from hydractl.selection.candidates import Candidate, Family
from hydractl.selection.greedy import Answers, Quality, quality, standing
from hydractl.selection.objectives import Objective

#: What networks that lack these heads say of the selection samples.
Ask = Callable[[Sequence[frozenset[Head]]], Answers]


@dataclass(frozen=True)
class JointSearch:
    """What is searched for.

    Attributes:
        heads: those that members may drop, in candidate order.
        members: how many; no two of them come to lack the same heads.
        budgets: how many heads each drops: ascending, all of them prefixes of one search.
        least_accuracy: of the members together, as in `select`.
    """

    heads: tuple[Head, ...]
    members: int
    budgets: tuple[int, ...]
    objective: Objective
    least_accuracy: Fraction | None = None

    @property
    def turns(self) -> int:
        """How many heads leave, one in each turn."""
        return self.members * max(self.budgets)

    def lacking(self, turns: Sequence[Head], budget: int | None = None) -> list[frozenset[Head]]:
        """What each member lacks after so many turns, or when it had dropped as many as a budget."""
        return [frozenset(turns[member :: self.members][:budget]) for member in range(self.members)]

    def trials(self, turns: Sequence[Head]) -> dict[Head, frozenset[Head]]:
        """What the member whose turn it is would lack, by the head that it would drop, in candidate order."""
        lacking = self.lacking(turns)
        own = lacking[len(turns) % self.members]
        trials = {head: own | {head} for head in self.heads if head not in own}
        return {head: gone for head, gone in trials.items() if gone not in lacking}

    def could_find(self, turns: Sequence[Head]) -> bool:
        """Whether these can be the first of its turns."""
        return len(turns) <= self.turns and all(head in self.trials(turns[:n]) for n, head in enumerate(turns))

    def measured(self, turns: Sequence[Head]) -> int:
        """How many networks the rest of the search asks, at most: the members, and in turn all trials and the best."""
        left = range(len(turns), self.turns)
        return self.members + sum(len(self.heads) - done // self.members + 1 for done in left)

    def family(self, turns: Sequence[Head], budget: int, trunk: int) -> Family:
        """The members of a budget, as candidates that are fused with one another."""
        suffix = f" trunk {trunk}" if trunk else ""
        lacking = enumerate(self.lacking(turns, budget), 1)
        return Family(trunk, tuple(Candidate(f"joint {budget} member {n}{suffix}", gone) for n, gone in lacking))


def possible(budgets: Sequence[int], heads: int, members: int) -> tuple[int, ...]:
    """Those of the budgets that leave every member a head to drop, whatever the others lack.

    Raises:
        OptionError: there are none, or more members than heads.
    """
    most = heads - members + 1
    if most < 1:
        raise OptionError(f"`members` {members}: there are {heads} heads for them to differ by: search for fewer")
    found = tuple(budget for budget in budgets if 1 <= budget <= most)
    if not found:
        raise OptionError(
            f"`budgets` has to name how many heads members drop, from 1 to {most}: of {heads} heads {members} members "
            "drop different ones"
        )
    return found


def search_jointly(
    search: JointSearch,
    ask: Ask,
    begun: Sequence[Head] = (),
    on_turn: Callable[[Sequence[Head], Quality], None] = lambda turns, quality: None,
) -> tuple[Head, ...]:
    """The heads that leave, turn by turn: member 1's first, member 2's first, and so on round and round.

    Of equally good heads the first in candidate order leaves.

    Args:
        ask: always says the same of the same networks, so that an interrupted search goes on to the same result.
        begun: the turns of an interrupted search.
        on_turn: told of all turns so far, and how the members do together after the last.

    Raises:
        DataError: a logit is not finite.
    """
    turns = list(begun)
    said = [ask([gone]) for gone in search.lacking(turns)]
    while len(turns) < search.turns:
        member = len(turns) % search.members
        trials = search.trials(turns)
        others = [said[one] for one in range(search.members) if one != member]
        together = _side_by_side([*others, ask(list(trials.values()))])
        places = range(len(others))
        found = {head: quality(together, (*places, len(others) + k)) for k, head in enumerate(trials)}
        best = max(found, key=lambda head: standing(found[head], search.objective, search.least_accuracy))
        turns.append(best)
        said[member] = ask([trials[best]])
        on_turn(turns, found[best])
    return tuple(turns)


def _side_by_side(answers: Sequence[Answers]) -> Answers:
    """The answers of several calls as if they were of one."""
    first = answers[0]
    return Answers(
        np.concatenate([one.inside for one in answers]),
        first.labels,
        {name: np.concatenate([one.outside[name] for one in answers]) for name in first.outside},
        first.temperature,
    )
