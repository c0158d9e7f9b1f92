"""Candidates of several sets in one pool, and the best members of any set."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch

from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.contents import Checkpoint, trunk_depth
from hydractl.checkpoint.heads import Head, KeptHeads, without
from hydractl.checkpoint.layout import Layout, side_by_side, stored_shapes
from hydractl.checkpoint.slots import Slot, parameter_count, slots
from hydractl.checkpoint.tensors import tensor_bytes
from hydractl.circuit.objective import Measure
from hydractl.errors import OptionError
from hydractl.selection.candidates import DENSE, Candidate, CandidateSet
from hydractl.selection.greedy import CandidateLogits, MemberCurve, quality, select
from hydractl.surgery.fusion import fuse, fused_layout
from hydractl.surgery.slicing import drop_heads, with_dtype


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """All candidates, each set of heads once, whatever sets they are in; files of members come last."""

    network: Checkpoint  # the one that candidates are made of
    dropped: tuple[Candidate, ...]  # candidates that lack heads of the network
    files: tuple[Checkpoint, ...]  # members that exist, each a candidate of every set whose trunk it shares
    sets: tuple[tuple[int, ...], ...]  # by numbers of candidates
    trunks: tuple[int, ...]  # how many layers the candidates of each set share
    marks: dict[int, dict[str, bytes]] = field(default_factory=dict)  # of tensors, by candidate, once they are read

    @property
    def names(self) -> list[str]:
        """The name of each candidate."""
        short = [Path(member.name).name for member in self.files]
        alone = len(set(short)) == len(short)  # a folder says nothing then, and differs from place to place
        return [candidate.name for candidate in self.dropped] + [
            name if alone else member.name for name, member in zip(short, self.files, strict=True)
        ]

    def checkpoint(self, candidate: int) -> Checkpoint:
        """Returns a candidate as a network of its own; nothing is read yet."""
        if candidate >= len(self.dropped):
            return self.files[candidate - len(self.dropped)]
        return drop_heads(self.network, self.dropped[candidate].dropped)

    def files_among(self, chosen: Sequence[int]) -> list[Checkpoint]:
        """Returns those of some candidates that are files of their own."""
        return [self.checkpoint(candidate) for candidate in chosen if candidate >= len(self.dropped)]

    def fused(self, chosen: Sequence[int]) -> Checkpoint:
        """Returns the network that some candidates make together, each with all of its own weights, as measured."""
        return together([self.checkpoint(candidate) for candidate in chosen], ["all"])

    def cost(self, chosen: Sequence[int]) -> int:
        """Returns the multiply-adds of that network for one sample, as published."""
        return multiply_adds(self.network.spec, self.layout(chosen))

    def parameters(self, chosen: Sequence[int]) -> int:
        """Counts the numbers that that network stores."""
        return parameter_count(stored_shapes(self.network.spec, self.layout(chosen)))

    def layout(self, chosen: Sequence[int]) -> Layout:
        """Returns what its members keep, and which tensors these share."""
        if self.files_among(chosen):
            members = [self.checkpoint(candidate) for candidate in chosen]
            if len(members) == 1:
                return members[0].layout
            if any(member.units or member.members > 1 for member in members):
                return self.fused(chosen).layout
            return fused_layout(members, [self.marked(candidate) for candidate in chosen])
        # Members of one network differ where their heads do: nothing has to be read.
        spec, source = self.network.spec, self.network.layout
        kept = [replace(source, heads=without(source.heads, self.dropped[candidate].dropped)) for candidate in chosen]
        joined, table = side_by_side(spec, kept, source.shared), slots(spec).items()
        shared = frozenset(name for name, slot in table if not slot.is_attention or _alike(joined.heads, slot))
        return replace(joined, shared=shared)

    def depth(self, candidate: int) -> int:
        """Returns the number of leading layers that a file shares with the network."""
        if not any(self.trunks):
            return 0
        tower = self.network.spec.towers[0].name
        if self.checkpoint(candidate).spec != self.network.spec:
            return 0
        return trunk_depth(self.network.spec, self.layout([0, candidate]), tower)

    def marked(self, candidate: int) -> dict[str, bytes]:
        """Returns a mark of the numbers of each tensor of a candidate, read once."""
        if candidate not in self.marks:
            same = {} if candidate == 0 else self.marked(0)  # candidates hold most tensors of the network as they are
            self.marks[candidate] = {
                name: same[name]
                if same and tensor is self.network.tensors.get(name)
                else sha256(tensor_bytes(tensor.load())).digest()
                for name, tensor in self.checkpoint(candidate).tensors.items()
            }
        return self.marks[candidate]


def _alike(heads: KeptHeads, slot: Slot) -> bool:
    return slot.tower is None or slot.layer is None or len(set(heads[slot.tower][slot.layer])) == 1


def together(
    members: Sequence[Checkpoint], separate: Iterable[str] | None = None, dtype: torch.dtype | None = None
) -> Checkpoint:
    """Fuses members; returns the only one as it is."""
    return with_dtype(members[0], dtype) if len(members) == 1 else fuse(members, separate, dtype)


def gather(network: Checkpoint, sets: Sequence[CandidateSet], files: Sequence[Checkpoint] = ()) -> CandidatePool:
    """Returns the candidates of all sets."""
    # The network itself is always measured: the others are compared with it.
    listed = [DENSE]
    numbers: dict[frozenset[Head], int] = {DENSE.dropped: 0}
    for candidate in (candidate for group in sets for candidate in group.candidates):
        if candidate.dropped not in numbers:
            numbers[candidate.dropped] = len(listed)
            listed.append(candidate)
    if not files and not any(group.candidates for group in sets):
        raise OptionError("no candidates: give `circuit` or `random` with `budgets`, or files of members")
    pool = CandidatePool(network, tuple(listed), tuple(files), sets=(), trunks=tuple(group.trunk for group in sets))
    depths = {len(listed) + place: pool.depth(len(listed) + place) for place in range(len(files))}
    members = tuple(
        (
            *(numbers[candidate.dropped] for candidate in group.candidates),
            *(number for number, depth in depths.items() if depth >= group.trunk),
        )
        for group in sets
    )
    return replace(pool, sets=members)


@dataclass(frozen=True)
class Criteria:
    """The criteria of a selection."""

    members: tuple[int, int]  # how many at least and at most
    # multiply_adds, parameters: multiply-adds and stored numbers as multiples of the network's; None for any
    multiply_adds: float | None = None
    parameters: float | None = None

    def allows(self, candidates: CandidatePool, chosen: Sequence[int]) -> bool:
        """Returns True if members together keep within the limits on cost."""
        limits = ((self.multiply_adds, candidates.cost), (self.parameters, candidates.parameters))
        return all(most is None or count(chosen) <= most * count([0]) for most, count in limits)


@dataclass(frozen=True)
class Outcome:
    """The selected members, how many layers they share for certain, and the quality of the network alone."""

    curve: MemberCurve
    trunk: int
    baseline: Measure


def choose(logits: CandidateLogits, candidates: CandidatePool, criteria: Criteria) -> Outcome:
    """Returns the best selection of all sets; among equals that of the first set.

    Raises:
        OptionError: no set has enough candidates that keep to the cost; the last one's reason is given.
    """
    baseline = quality(logits, [0])
    low, high = criteria.members
    outcomes: list[Outcome] = []
    reason = OptionError("no candidates to choose from: give `budgets` or files of members")
    for numbers, trunk in zip(candidates.sets, candidates.trunks, strict=True):
        try:
            curve = select(
                logits,
                (low, max(low, min(high, len(numbers)))),
                candidates.cost,
                among=numbers,
                within=partial(criteria.allows, candidates),
            )
        except OptionError as error:
            reason = error
        else:
            outcomes.append(Outcome(curve, trunk, baseline))
    if not outcomes:
        raise reason
    return min(outcomes, key=lambda outcome: outcome.curve.quality.nll)
