"""What every system of an evaluation does: say its logits for a data set, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from torch import Tensor

from hydractl.evaluation.cost import Cost
from hydractl.evaluation.sets import SetKey


class LogitBatch(NamedTuple):
    """The logits of some samples of a set.

    Attributes:
        member_logits: `[M,B,C]` float32 or float64 on the CPU, before any temperature.
        labels: `[B]` int64 in 0..C-1, or None for samples without.
        positions: `[B]` int64, where the samples stand in their set.
    """

    member_logits: Tensor
    labels: Tensor | None
    positions: Tensor


class Predictor(Protocol):
    """A system, whatever computes its logits or computed them once."""

    @property
    def temperature(self) -> float:
        """Its own: what a calibrated file carries, else 1."""

    @property
    def cost(self) -> Cost | None:
        """What it costs, None where that was not recorded."""

    def samples(self, key: SetKey) -> int:
        """How many samples of the set it answers; 0 where that shows only at the end of a stream."""

    def logits(self, key: SetKey) -> Iterator[LogitBatch]:
        """The set's logits, each sample once, in any order.

        Raises:
            DataError: the set cannot be read, or the system has nothing for it.
        """
