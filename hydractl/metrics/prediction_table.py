"""The table of per-sample quantities that every metric is computed from, small whatever the classes."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hydractl.errors import DataError
from hydractl.metrics.checks import (
    BoolArray,
    FloatArray,
    IntArray,
    Logits,
    check_labels,
)
from hydractl.metrics.probabilities import (
    entropies,
    label_log_probabilities,
    log_doubt,
    mean_over_members,
    member_probabilities,
    sample_chunks,
    scaled_logits,
)

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Outcomes of the predictions by their labels; all [N]."""

    labels: IntArray
    correct: BoolArray
    nll: FloatArray  # -log of the mean probability of the label, nats, finite
    brier: FloatArray  # sum over classes of (p - y)^2, 0..2


@dataclass(frozen=True, eq=False)
class PredictionTable:
    """Per-sample quantities of an ensemble of M >= 1 members; all [N], entropies in nats."""

    prediction: IntArray  # argmax of the mean probability, the first among equals
    msp: FloatArray  # its probability
    doubt: FloatArray  # what ranks as 1 - msp, also where that is 0 to the last digit: log(1 - msp) of classes
    entropy: FloatArray  # of the mean probability
    expected_entropy: FloatArray  # mean of the members' entropies
    disagreement: FloatArray  # share of member pairs with different argmax; 0 for one member
    outcomes: Outcomes | None

    @property
    def mutual_information(self) -> FloatArray:
        """Entropy of the mean less the mean entropy of the members, nats, never below 0, [N]."""
        return np.maximum(self.entropy - self.expected_entropy, 0.0)

    def required_outcomes(self) -> Outcomes:
        """Returns the outcomes."""
        if self.outcomes is None:
            raise DataError("accuracy and calibration need labels, and these samples have none")
        return self.outcomes


def tabulate(
    member_logits: Logits, labels: NDArray[np.integer] | None = None, temperature: float = 1.0
) -> PredictionTable:
    """Returns the per-sample quantities of an ensemble's logits, the same bits however the samples are split.

    Args:
        member_logits: [M,N,C] float32 or float64.
        labels: [N] integers in 0..C-1, or None for samples without, as OOD ones.
        temperature: divides the logits of every member; > 1 softens.
    """
    checked = None if labels is None else check_labels(member_logits, labels)
    chunks = []
    for samples in sample_chunks(member_logits):
        scaled = scaled_logits(member_logits, samples, temperature)
        chunks.append(_reduce(scaled, None if checked is None else checked[samples]))
    return in_order(chunks, np.arange(member_logits.shape[1]))


def in_order(parts: Sequence[T], positions: NDArray[np.integer]) -> T:
    """Returns results of a set's batches as one, with the samples in the order of the set.

    Args:
        parts: dataclasses of one form, such as tables, whose fields are arrays of samples, None or such dataclasses.
        positions: [N] where each sample stands in the set, each place once.
    """
    order = np.argsort(positions)

    def joined(columns: Sequence[Any]) -> Any:
        if columns[0] is None:
            return None
        if is_dataclass(kind := type(columns[0])):
            return kind(*(joined([getattr(part, field.name) for part in columns]) for field in fields(kind)))
        return np.concatenate(columns)[order]

    result: T = joined(parts)
    return result


def _reduce(scaled: FloatArray, labels: IntArray | None) -> PredictionTable:
    members = member_probabilities(scaled)
    mean = mean_over_members(members)
    prediction = mean.argmax(axis=-1)
    return PredictionTable(
        prediction=prediction,
        msp=mean.max(axis=-1),
        doubt=log_doubt(scaled, prediction),
        entropy=entropies(mean).sum(axis=-1),
        expected_entropy=mean_over_members(entropies(members).sum(axis=-1)),
        disagreement=_disagreement(scaled.argmax(axis=-1)),
        outcomes=None if labels is None else _compare(scaled, mean, prediction, labels),
    )


def _compare(scaled: FloatArray, mean: FloatArray, prediction: IntArray, labels: IntArray) -> Outcomes:
    error = mean.copy()
    error[np.arange(len(labels)), labels] -= 1.0
    # Subtracted from 0: a unary minus would make the loss of a sure label -0.0.
    nll = 0.0 - label_log_probabilities(scaled, labels)
    return Outcomes(labels=labels, correct=prediction == labels, nll=nll, brier=np.square(error).sum(axis=-1))


def _disagreement(member_predictions: IntArray) -> FloatArray:
    members, samples = member_predictions.shape
    if members == 1:
        return np.zeros(samples)
    different = np.zeros(samples, dtype=np.int64)
    for first in range(members):
        different += (member_predictions[first + 1 :] != member_predictions[first]).sum(axis=0)
    return np.asarray(different / (members * (members - 1) // 2), dtype=np.float64)
