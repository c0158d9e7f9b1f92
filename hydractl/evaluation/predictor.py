"""What every system of an evaluation does: answer a data set, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from torch import Tensor

from hydractl.errors import DataError
from hydractl.evaluation.results import Cost
from hydractl.evaluation.sets import SetKey


class AnsweredBatch(NamedTuple):
    """What a system says of some samples of a set, on the CPU in float32 or float64.

    Attributes:
        member_logits: `[M,B,C]`, before any temperature; None where a confidence is all that was saved.
        labels: `[B]` int64 in 0..C-1, or None for samples without.
        positions: `[B]` int64, where the samples stand in their set.
        features: `[M,B,D']`, what the members' classifiers read; None where they were not asked for.
        confidence: `[B]`, how sure the system is that it is right, by its own account; None where logits say it.
        correct: `[B]` booleans, whether it is right, where no logits tell that; None for samples without labels.
    """

    member_logits: Tensor | None
    labels: Tensor | None
    positions: Tensor
    features: Tensor | None = None
    confidence: Tensor | None = None
    correct: Tensor | None = None

    def logits(self) -> Tensor:
        """The members' logits.

        Raises:
            DataError: there are none.
        """
        if self.member_logits is None:
            raise DataError("saved confidences hold no logits to fit anything on: save `logits` as well")
        return self.member_logits


class Classifier(NamedTuple):
    """The affine maps by which members make logits of features: `[M,C,D']` and `[M,C]`."""

    weight: Tensor
    bias: Tensor


class Predictor(Protocol):
    """A system, whatever computes its answers or computed them once."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of its classes, in the order of the logits, None where they are not known."""

    @property
    def temperature(self) -> float:
        """Its own: what a calibrated file carries, else 1."""

    @property
    def cost(self) -> Cost | None:
        """What it costs, None where that was not recorded."""

    @property
    def classifier(self) -> Classifier | None:
        """What its members make logits of features with, None where that was not recorded."""

    @property
    def confident(self) -> bool:
        """Whether its answers hold a confidence of its own, which then is its score, whatever score is chosen."""

    def samples(self, key: SetKey) -> int:
        """How many samples of the set it answers; 0 where that shows only at the end of a stream."""

    def answers(self, key: SetKey, features: bool = False) -> Iterator[AnsweredBatch]:
        """The set's answers, each sample once, in any order.

        Args:
            features: whether the answers shall hold them.

        Raises:
            DataError: the set cannot be read, or the system has nothing for it.
        """
