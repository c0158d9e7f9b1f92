"""Joint search: in turn each member drops the head without which the mean of all members' probabilities is best.

This is the paper's greedy search ([HE] D.1.2, Algorithm 1) of several networks at once, measured by their mean
prediction; so it takes as long as that many searches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hydractl.artifacts import ListedHead, State, StateFile
from hydractl.checkpoint.heads import Head
from hydractl.circuit.objective import Measure
from hydractl.errors import OptionError
from hydractl.schema import Items
from hydractl.selection.candidates import Candidate, CandidateSet, counts
from hydractl.selection.greedy import CandidateLogits, Goal, quality

#: The logits of networks that lack these heads, on the selection samples.
Ask = Callable[[Sequence[frozenset[Head]]], CandidateLogits]
#: The heads that have left, turn by turn, over each trunk.
Turns = Sequence[Sequence[Head]]


@dataclass(frozen=True)
class JointSearch:
    """A search for several members."""

    heads: tuple[Head, ...]  # those that members may drop, in candidate order
    members: int  # how many; no two of them come to lack the same heads
    budgets: tuple[int, ...]  # how many heads each drops: ascending, all of them prefixes of one search

    @property
    def turns(self) -> int:
        """The number of heads that leave, one in each turn."""
        return self.members * max(self.budgets)

    def lacking(self, turns: Sequence[Head], budget: int | None = None) -> list[frozenset[Head]]:
        """Returns the heads that each member lacks after some turns, or when it had dropped as many as a budget."""
        return [frozenset(turns[member :: self.members][:budget]) for member in range(self.members)]

    def trials(self, turns: Sequence[Head]) -> dict[Head, frozenset[Head]]:
        """Returns the heads that the next member would lack, by the head that it would drop, in candidate order."""
        lacking = self.lacking(turns)
        own = lacking[len(turns) % self.members]
        trials = {head: own | {head} for head in self.heads if head not in own}
        return {head: gone for head, gone in trials.items() if gone not in lacking}

    def measured(self, turns: Sequence[Head]) -> int:
        """Counts the networks that the rest of the search runs at most: the members, then all trials and the best."""
        left = range(len(turns), self.turns)
        return self.members + sum(len(self.heads) - done // self.members + 1 for done in left)

    def candidate_set(self, turns: Sequence[Head], budget: int, trunk: int) -> CandidateSet:
        """Returns the members of a budget, as candidates that are fused with one another."""
        suffix = f" trunk {trunk}" if trunk else ""
        lacking = enumerate(self.lacking(turns, budget), 1)
        return CandidateSet(trunk, tuple(Candidate(f"joint {budget} member {n}{suffix}", gone) for n, gone in lacking))


def joint_searches(
    heads: Sequence[Head], trunks: Sequence[int], budgets: str, members: tuple[int, int]
) -> dict[int, JointSearch]:
    """Returns a search over each trunk whose layers above have enough heads.

    Args:
        heads: of the network.
        budgets: as for candidates; shares are of the heads above the trunk.

    Raises:
        OptionError: no single number of members, or no budget that so many members can drop.
    """
    low, high = members
    if low != high:
        raise OptionError(f"`members` {low}-{high}: `method` joint looks for one number of members: name that")
    found, reason = {}, None
    for trunk in trunks:
        above = tuple(head for head in heads if head.layer >= trunk)
        try:
            own = possible(counts("budgets", budgets, len(heads), len(above)), len(above), low)
        except OptionError as error:
            reason = error
        else:
            found[trunk] = JointSearch(above, low, own)
    if reason is not None and not found:
        raise reason
    return found


def possible(budgets: Sequence[int], heads: int, members: int) -> tuple[int, ...]:
    """Returns those of the budgets that leave every member a head to drop, whatever the others lack."""
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
    goal: Goal,
    ask: Ask,
    begun: Sequence[Head] = (),
    on_turn: Callable[[Sequence[Head], Measure], None] = lambda turns, quality: None,
) -> tuple[Head, ...]:
    """Returns the heads that leave, turn by turn: member 1's first, member 2's first, and so on round and round.

    Among equally good heads the first in candidate order leaves.

    Args:
        ask: returns the same logits for the same networks, so that an interrupted search ends in the same result.
        begun: the turns of an interrupted search.
        on_turn: called with all turns so far, and the quality of the members together after the last.
    """
    turns = list(begun)
    own = [ask([gone]) for gone in search.lacking(turns)]
    while len(turns) < search.turns:
        member = len(turns) % search.members
        trials = search.trials(turns)
        others = [own[one] for one in range(search.members) if one != member]
        together = _side_by_side([*others, ask(list(trials.values()))])
        places = range(len(others))
        found = {head: quality(together, (*places, len(others) + k)) for k, head in enumerate(trials)}
        best = max(found, key=lambda head: goal.standing(found[head]))
        turns.append(best)
        own[member] = ask([trials[best]])
        on_turn(turns, found[best])
    return tuple(turns)


def _side_by_side(answers: Sequence[CandidateLogits]) -> CandidateLogits:
    first = answers[0]
    return CandidateLogits(
        np.concatenate([one.inside for one in answers]),
        first.labels,
        [np.concatenate(own) for own in zip(*(one.outside for one in answers), strict=True)],
        first.temperature,
        scores=[np.concatenate(own) for own in zip(*(one.scores for one in answers), strict=True)],
    )


class _State(State, keys={"findings": "turns"}):
    findings: Items[Items[ListedHead]]


class TurnsJournal(StateFile[Turns]):
    """The turns of a joint search so far, on disk."""

    FORMAT, FILE = "hydractl-joint-search-state", _State
