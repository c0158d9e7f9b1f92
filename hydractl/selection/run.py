"""Selection from one end to the other: candidates of several families, their answers, and the best of each family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, KeptHeads, without
from hydractl.checkpoint.slots import Slot, parameter_count, slots, stored_shape
from hydractl.errors import OptionError
from hydractl.evaluation.cost import multiply_adds
from hydractl.selection.candidates import DENSE, Candidate, Family
from hydractl.selection.greedy import Answers, Quality, Selection, quality, select
from hydractl.selection.objectives import Objective
from hydractl.surgery.fusion import fuse
from hydractl.surgery.members import drop_heads
from hydractl.surgery.weights import with_dtype


@dataclass(frozen=True, eq=False)
class Pool:
    """All candidates, each set of heads once, whatever families it is of; files of members come last.

    Attributes:
        network: that candidates are made of.
        dropped: candidates that lack heads of the network.
        files: members that exist, each a candidate of every family without a trunk.
        families: by numbers of candidates.
        trunks: how many layers the candidates of each family have alike.
    """

    network: Checkpoint
    dropped: tuple[Candidate, ...]
    files: tuple[Checkpoint, ...]
    families: tuple[tuple[int, ...], ...]
    trunks: tuple[int, ...]

    @property
    def names(self) -> list[str]:
        """What each candidate is called."""
        return [candidate.name for candidate in self.dropped] + [member.name for member in self.files]

    def checkpoint(self, candidate: int) -> Checkpoint:
        """A candidate as a network of its own; nothing is read yet."""
        if candidate >= len(self.dropped):
            return self.files[candidate - len(self.dropped)]
        return drop_heads(self.network, self.dropped[candidate].dropped)

    def files_among(self, chosen: Sequence[int]) -> list[Checkpoint]:
        """Those of some candidates that are files of their own."""
        return [self.checkpoint(candidate) for candidate in chosen if candidate >= len(self.dropped)]

    def fused(self, chosen: Sequence[int]) -> Checkpoint:
        """The network that some candidates make together."""
        return together([self.checkpoint(candidate) for candidate in chosen])

    def cost(self, chosen: Sequence[int]) -> int:
        """Multiply-adds of that network for one sample, as published."""
        return multiply_adds(self.network.spec, *self.layout(chosen))

    def parameters(self, chosen: Sequence[int]) -> int:
        """How many numbers that network stores."""
        heads, shared = self.layout(chosen)
        table = slots(self.network.spec)
        shapes = {n: stored_shape(slot, self.network.spec, heads, n in shared) for n, slot in table.items()}
        return parameter_count(shapes)

    def layout(self, chosen: Sequence[int]) -> tuple[KeptHeads, frozenset[str]]:
        """The heads that its members keep, and which tensors these share."""
        if self.files_among(chosen):
            whole = self.fused(chosen)
            return whole.heads, whole.shared
        # Of one network less some heads nothing has to be read to know where members differ.
        kept = [without(self.network.heads, self.dropped[candidate].dropped) for candidate in chosen]
        heads = {
            tower: tuple(tuple(own[tower][layer][0] for own in kept) for layer in range(len(layers)))
            for tower, layers in self.network.heads.items()
        }
        table = slots(self.network.spec).items()
        return heads, frozenset(name for name, slot in table if not slot.is_attention or _alike(heads, slot))


def _alike(heads: KeptHeads, slot: Slot) -> bool:
    return slot.tower is None or slot.layer is None or len(set(heads[slot.tower][slot.layer])) == 1


def together(
    members: Sequence[Checkpoint], separate: Iterable[str] | None = None, dtype: torch.dtype | None = None
) -> Checkpoint:
    """Members fused, or the only one as it is."""
    return with_dtype(members[0], dtype) if len(members) == 1 else fuse(members, separate, dtype)


def pool(network: Checkpoint, families: Sequence[Family], files: Sequence[Checkpoint] = ()) -> Pool:
    """The candidates of all families.

    Raises:
        OptionError: there are none.
    """
    # The network itself always answers: it is what the others are compared with.
    listed = [DENSE]
    numbers: dict[frozenset[Head], int] = {DENSE.dropped: 0}
    for candidate in (candidate for family in families for candidate in family.candidates):
        if candidate.dropped not in numbers:
            numbers[candidate.dropped] = len(listed)
            listed.append(candidate)
    if not files and not any(family.candidates for family in families):
        raise OptionError("there are no candidates: give `circuit` or `random` with `budgets`, or files of members")
    last = tuple(range(len(listed), len(listed) + len(files)))
    members = tuple(
        tuple(numbers[candidate.dropped] for candidate in family.candidates) + (last if not family.trunk else ())
        for family in families
    )
    return Pool(network, tuple(listed), tuple(files), members, tuple(family.trunk for family in families))


@dataclass(frozen=True)
class Asked:
    """What is selected for.

    Attributes:
        members: how many at least and at most.
        max_accuracy_drop: against the network, 0..1; None for as much as the objective likes.
        max_cost, max_parameters: multiply-adds and stored numbers as multiples of the network's; None for as many as
            members have.
    """

    objective: Objective
    members: tuple[int, int]
    max_accuracy_drop: float | None = None
    max_cost: float | None = None
    max_parameters: float | None = None

    def least_accuracy(self, network: Quality) -> Fraction | None:
        """What members together may not fall below, given how the network does; None where anything will do."""
        if self.max_accuracy_drop is None:
            return None
        return network.accuracy - Fraction(self.max_accuracy_drop).limit_denominator(10**6)

    def allows(self, candidates: Pool, chosen: Sequence[int]) -> bool:
        """Whether members together keep to what they may cost."""
        limits = ((self.max_cost, candidates.cost), (self.max_parameters, candidates.parameters))
        return all(most is None or count(chosen) <= most * count([0]) for most, count in limits)


@dataclass(frozen=True)
class Choice:
    """What was selected, how many layers its members share for certain, and how the network alone does."""

    selection: Selection
    trunk: int
    baseline: Quality


def choose(answers: Answers, candidates: Pool, asked: Asked) -> Choice:
    """The best selection of all families; of equals that of the first family.

    Raises:
        OptionError: no family has enough candidates that keep to the cost; the last one's reason is said.
    """
    baseline = quality(answers, [0])
    least = asked.least_accuracy(baseline)
    found: list[tuple[Selection, int]] = []
    reason: OptionError | None = None
    for numbers, trunk in zip(candidates.families, candidates.trunks, strict=True):
        try:
            found.append((_of_family(answers, candidates, numbers, asked, least), trunk))
        except OptionError as error:
            reason = error
    if not found:
        raise reason or OptionError("there are no candidates to choose from")
    best, trunk = max(found, key=lambda entry: _rank(entry[0], asked, least))
    return Choice(best, trunk, baseline)


def _rank(selection: Selection, asked: Asked, least: Fraction | None) -> tuple[bool, Fraction | float]:
    enough = least is None or selection.quality.accuracy >= least
    return enough, selection.quality.score(asked.objective) if enough else selection.quality.accuracy


def _of_family(
    answers: Answers,
    candidates: Pool,
    numbers: Sequence[int],
    asked: Asked,
    least: Fraction | None,
) -> Selection:
    """A selection among some of the candidates, by their numbers among all."""
    own = Answers(
        answers.inside[list(numbers)],
        answers.labels,
        {name: logits[list(numbers)] for name, logits in answers.outside.items()},
        answers.temperature,
    )
    low, high = asked.members
    found = select(
        own,
        asked.objective,
        (low, max(low, min(high, len(numbers)))),
        lambda chosen: candidates.cost([numbers[k] for k in chosen]),
        least,
        lambda chosen: asked.allows(candidates, [numbers[k] for k in chosen]),
    )
    return found.renumbered(numbers)
