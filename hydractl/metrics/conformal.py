"""Split conformal prediction: sets of classes that hold the right one with a chosen probability."""

from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np

from hydractl.errors import OptionError
from hydractl.metrics.checks import FloatArray, IntArray, Logits
from hydractl.metrics.probabilities import (
    mean_over_members,
    member_probabilities,
    sample_chunks,
    scaled_logits,
)

ConformalMethod = Literal["lac", "aps"]

# Probabilities are sums of rounded numbers: a class this close to the threshold is in the set.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class ConformalMetrics:
    """Size and coverage of prediction sets on evaluation data."""

    coverage: float  # share of samples whose set holds the label
    mean_size: float  # classes


def nonconformity(
    member_logits: Logits, labels: IntArray, method: ConformalMethod, temperature: float = 1.0
) -> FloatArray:
    """Returns how badly each label fits its sample, [N] in 0..1, higher = worse.

    lac: 1 - the label's mean probability. aps: the summed probability of all classes at least as probable as
    the label; without randomisation, so sets are reproducible and cover a little more than the wanted share.

    Args:
        member_logits: [M,N,C] of calibration samples.
        labels: [N] in 0..C-1.
        temperature: divides the logits of every member.

    Source: lac Sadinle et al. 2019, aps Romano et al. 2020.
    """
    scores = np.empty(len(labels))
    for samples in sample_chunks(member_logits):
        of_classes = _class_scores(member_logits, samples, method, temperature)
        scores[samples] = np.take_along_axis(of_classes, labels[samples, None], axis=-1)[:, 0]
    return scores


def conformal_threshold(scores: FloatArray, coverage: float = 0.9) -> float:
    """Returns the nonconformity up to which a class belongs to a set, 0..1, or 1 where there are too few scores.

    The ceil((N + 1) coverage)-th smallest score, which guarantees the coverage on exchangeable data.

    Args:
        scores: [N] nonconformity of calibration samples.

    Raises:
        OptionError: a coverage outside (0,1).
    """
    if not 0 < coverage < 1:
        raise OptionError(f"coverage {coverage}: expected above 0 and below 1")
    rank = int(np.ceil(round((scores.size + 1) * coverage, 9)))
    # With too few scores only the set of all classes keeps the promise; no score exceeds 1.
    return float(np.sort(scores)[rank - 1]) if rank <= scores.size else 1.0


def prediction_sets(
    member_logits: Logits, labels: IntArray, threshold: float, method: ConformalMethod, temperature: float = 1.0
) -> ConformalMetrics:
    """Returns the size of the prediction sets, and how many of them hold the label.

    The predicted class is always in its set: an empty set would help nobody, and more classes cover no less.

    Args:
        member_logits: [M,N,C] of test samples, not those of the calibration.
        labels: [N] in 0..C-1.
        threshold: from `conformal_threshold` of the same method and temperature.

    Source: lac Sadinle et al. 2019, aps Romano et al. 2020.
    """
    classes = covered = 0
    for samples in sample_chunks(member_logits):
        scores = _class_scores(member_logits, samples, method, temperature)
        chosen = scores <= max(threshold, 0.0) + _ROUNDING
        chosen[np.arange(len(scores)), scores.argmin(axis=-1)] = True
        classes += int(chosen.sum())
        covered += int(np.take_along_axis(chosen, labels[samples, None], axis=-1).sum())
    return ConformalMetrics(covered / len(labels), classes / len(labels))


def _class_scores(member_logits: Logits, samples: slice, method: ConformalMethod, temperature: float) -> FloatArray:
    """Returns the nonconformity of every class, [n,C]."""
    probabilities = mean_over_members(member_probabilities(scaled_logits(member_logits, samples, temperature)))
    match method:
        case "lac":
            return 1.0 - probabilities
        case "aps":
            return _mass_at_least(probabilities)
    assert_never(method)


def _mass_at_least(probabilities: FloatArray) -> FloatArray:
    """Returns for every class the summed probability of all classes at least as probable, [n,C]."""
    order = np.argsort(-probabilities, axis=-1, kind="stable")
    ordered = np.take_along_axis(probabilities, order, axis=-1)
    mass = np.cumsum(ordered, axis=-1)
    # Equal classes get the mass at the end of their tie: carried back from the last of each.
    ends = np.ones_like(ordered, dtype=np.bool_)
    ends[:, :-1] = ordered[:, :-1] != ordered[:, 1:]
    mass = np.minimum.accumulate(np.where(ends, mass, np.inf)[:, ::-1], axis=-1)[:, ::-1]
    scores = np.empty_like(mass)
    np.put_along_axis(scores, order, np.minimum(mass, 1.0), axis=-1)
    return scores
