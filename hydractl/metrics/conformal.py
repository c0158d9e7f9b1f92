"""Split conformal prediction: sets of classes that hold the right one with a chosen probability."""

from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from hydractl.errors import OptionError
from hydractl.metrics.checks import (
    BoolArray,
    FloatArray,
    IntArray,
    Logits,
    check_labels,
    check_scores,
)
from hydractl.metrics.probabilities import (
    mean_over_members,
    member_probabilities,
    sample_chunks,
    scaled_logits,
)

ConformalMethod = Literal["lac", "aps"]

# Probabilities are sums of rounded numbers: a class this close to the threshold is in the set.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """The size of each sample's set and whether it holds the label; [N] and [N]."""

    size: IntArray
    covered: BoolArray


@dataclass(frozen=True)
class ConformalMetrics:
    """Size and coverage of prediction sets on evaluation data."""

    coverage: float  # share of samples whose set holds the label
    mean_size: float  # classes


def nonconformity(
    member_logits: Logits, labels: NDArray[np.integer], method: ConformalMethod, temperature: float = 1.0
) -> FloatArray:
    """Returns how badly each label fits its sample, [N] in 0..1, higher = worse.

    lac: 1 - the label's mean probability. aps: the summed probability of all classes at least as probable as
    the label; without randomisation, so sets are reproducible and cover a little more than the wanted share.

    Args:
        member_logits: [M,N,C] of calibration samples.
        labels: [N] integers in 0..C-1.
        method: lac or aps.
        temperature: divides the logits of every member.

    Raises:
        DataError: logits or labels of a wrong shape or type, empty, not finite, or outside the classes.

    Source: lac Sadinle et al. 2019, aps Romano et al. 2020.
    """
    checked = check_labels(member_logits, labels)
    scores = np.empty(len(checked))
    for samples in sample_chunks(member_logits):
        of_classes = _class_scores(member_logits, samples, method, temperature)
        scores[samples] = np.take_along_axis(of_classes, checked[samples, None], axis=-1)[:, 0]
    return scores


def conformal_threshold(scores: NDArray[np.floating], coverage: float = 0.9) -> float:
    """Returns the nonconformity up to which a class belongs to a set, 0..1, or 1 where there are too few scores.

    The ceil((N + 1) coverage)-th smallest score, which guarantees the coverage on exchangeable data.

    Args:
        scores: [N] nonconformity of calibration samples.
        coverage: wanted, in (0,1).

    Raises:
        DataError: no scores, or not finite.
        OptionError: a coverage outside (0,1).
    """
    if not 0 < coverage < 1:
        raise OptionError(f"coverage {coverage}: expected above 0 and below 1")
    checked = np.sort(check_scores(scores, "nonconformity"))
    rank = int(np.ceil(round((checked.size + 1) * coverage, 9)))
    # With too few scores only the set of all classes keeps the promise; no score exceeds 1.
    return float(checked[rank - 1]) if rank <= checked.size else 1.0


def prediction_sets(
    member_logits: Logits,
    labels: NDArray[np.integer],
    threshold: float,
    method: ConformalMethod,
    temperature: float = 1.0,
) -> PredictionSets:
    """Returns the size of every sample's prediction set, and whether it holds the label.

    The predicted class is always in its set: an empty set would help nobody, and more classes cover no less.

    Args:
        member_logits: [M,N,C] of test samples, not those of the calibration.
        labels: [N] integers in 0..C-1.
        threshold: from `conformal_threshold` of the same method and temperature.
        method: lac or aps.
        temperature: divides the logits of every member.

    Raises:
        DataError: logits or labels of a wrong shape or type, empty, not finite, or outside the classes.

    Source: lac Sadinle et al. 2019, aps Romano et al. 2020.
    """
    checked = check_labels(member_logits, labels)
    size = np.empty(len(checked), dtype=np.int64)
    covered = np.empty(len(checked), dtype=np.bool_)
    for samples in sample_chunks(member_logits):
        scores = _class_scores(member_logits, samples, method, temperature)
        chosen = scores <= max(threshold, 0.0) + _ROUNDING
        chosen[np.arange(len(scores)), scores.argmin(axis=-1)] = True
        size[samples] = chosen.sum(axis=-1)
        covered[samples] = np.take_along_axis(chosen, checked[samples, None], axis=-1)[:, 0]
    return PredictionSets(size, covered)


def conformal_metrics(sets: PredictionSets) -> ConformalMetrics:
    """Returns the share of sets that hold their label, and the mean number of classes in a set."""
    return ConformalMetrics(coverage=float(sets.covered.mean()), mean_size=float(sets.size.mean()))


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
