"""Compares how well dropped and kept heads tell ID from OOD samples.

Source: arXiv 2510.18358, B.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from hydractl.checkpoint.heads import Head
from hydractl.circuit.separation import Separation
from hydractl.errors import OptionError

#: Heads that a picture shows of those dropped first, and of those dropped last.
SHOWN = 6


@dataclass(frozen=True)
class Group:
    """The mean separation of some heads; None without heads."""

    heads: int  # their number
    euclidean: float | None
    mahalanobis: float | None


@dataclass(frozen=True)
class Separated:
    """Separation of ID from OOD samples by heads, kept ones against dropped ones."""

    heads: Mapping[Head, Separation]  # the separation of each head of the tower that reads the samples
    dropped: tuple[Head, ...]  # those that the circuit drops, first dropped first
    last: Mapping[str, Group]  # the two groups, `kept` and `dropped`, in the last layer, where the paper looks
    all: Mapping[str, Group]  # the same over all layers


def separated(gaps: Mapping[Head, Separation], ranking: Sequence[Head]) -> Separated:
    """Averages over the heads that a circuit keeps and drops.

    Args:
        gaps: the separation of each head.
        ranking: the dropped heads, first dropped first; those of a tower that reads no sample are ignored.

    Raises:
        OptionError: the circuit drops none of the heads, or all of them.
    """
    dropped = tuple(head for head in ranking if head in gaps)
    if not dropped or len(dropped) == len(gaps):
        which = "all" if dropped else "none"
        raise OptionError(f"the circuit drops {which} of the {len(gaps)} heads: there is nothing to compare them with")
    top = max(head.layer for head in gaps)
    groups = {
        "kept": [head for head in gaps if head not in dropped],
        "dropped": [head for head in gaps if head in dropped],
    }
    every = {name: _group([gaps[head] for head in heads]) for name, heads in groups.items()}
    last = {name: _group([gaps[head] for head in heads if head.layer == top]) for name, heads in groups.items()}
    return Separated(gaps, dropped, last, every)


def shown_heads(dropped: Sequence[Head]) -> tuple[list[Head], list[Head]]:
    """Returns up to SHOWN of the heads dropped first and up to SHOWN of those dropped last; no head is in both."""
    count = min(SHOWN, max(1, len(dropped) // 2))
    return list(dropped[:count]), list(dropped[count:][-count:])


def _group(members: Sequence[Separation]) -> Group:
    if not members:
        return Group(0, None, None)
    return Group(len(members), fmean(m.euclidean for m in members), fmean(m.mahalanobis for m in members))
