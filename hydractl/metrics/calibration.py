"""Accuracy and calibration: is the model right as often as it says?"""

from dataclasses import dataclass

import numpy as np

from hydractl.metrics.checks import BoolArray, FloatArray, IntArray
from hydractl.metrics.prediction_table import PredictionTable

BINS = 15  # of confidence, for both calibration errors


def is_chance(right: int, samples: int, classes: int) -> bool:
    """Returns whether guesses are right as often with a probability above 5 %; see `too_few_right`.

    >>> is_chance(10, 100, 10), is_chance(20, 100, 10)
    (True, False)
    """
    from scipy.special import bdtrc

    return bool(bdtrc(right - 1, samples, 1 / classes) > 0.05)


def too_few_right(right: int, samples: int, classes: int) -> bool:
    """Returns whether a network that is right half-way between guesses and always would hardly have so few right.

    Hardly means with a probability below 1e-4, so that a few samples never speak against a good network.

    >>> too_few_right(10, 100, 10), too_few_right(1, 3, 10), too_few_right(0, 20, 2)
    (True, False, True)
    """
    from scipy.special import bdtr

    return bool(bdtr(right, samples, (1 + 1 / classes) / 2) < 1e-4)


@dataclass(frozen=True)
class ClassificationMetrics:
    """Quality of classification on labelled samples; all but accuracy are better when lower."""

    accuracy: float
    brier: float
    nll: float
    ece: float
    adaptive_ece: float


@dataclass(frozen=True, eq=False)
class ReliabilityDiagram:
    """The contents of each bin of confidences; means are NaN in an empty bin."""

    edges: FloatArray  # [bins + 1], the bin's confidences lie in (left, right]
    counts: IntArray  # [bins]
    confidence: FloatArray  # [bins], mean
    accuracy: FloatArray  # [bins]


def classification_metrics(table: PredictionTable) -> ClassificationMetrics:
    """Returns accuracy, Brier score, negative log-likelihood in nats, ECE and adaptive ECE."""
    outcomes = table.required_outcomes()
    return ClassificationMetrics(
        accuracy=float(outcomes.correct.mean()),
        brier=float(outcomes.brier.mean()),
        nll=float(outcomes.nll.mean()),
        ece=expected_calibration_error(table.msp, outcomes.correct),
        adaptive_ece=adaptive_calibration_error(table.msp, outcomes.correct),
    )


def expected_calibration_error(confidence: FloatArray, correct: BoolArray, bins: int = BINS) -> float:
    """Returns the top-label expected calibration error, 0..1, L1, over equal-width right-closed bins on (0,1].

    Args:
        confidence: [N] in [0,1].
        correct: [N].

    Source: Naeini et al. 2015, Guo et al. 2017.
    """
    return binned_gap(equal_width_bins(confidence, bins), correct - confidence, len(confidence))


def adaptive_calibration_error(confidence: FloatArray, correct: BoolArray, bins: int = BINS) -> float:
    """Returns the top-label adaptive calibration error, 0..1, L1, over bins of equal mass; ties share a bin.

    Args:
        confidence: [N] in [0,1].
        correct: [N].
        bins: how many; with fewer samples every distinct confidence has its own.

    Source: Nixon et al. 2019.
    """
    _, ranks, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    gaps = np.asarray(np.bincount(ranks, weights=correct - confidence), dtype=np.float64)
    return binned_gap(equal_mass_bins(counts, bins), gaps, len(confidence))


def reliability_diagram(confidence: FloatArray, correct: BoolArray, bins: int = BINS) -> ReliabilityDiagram:
    """Returns the count, mean confidence and accuracy of each of the ECE's bins, of samples [N]."""
    which = equal_width_bins(confidence, bins)
    counts = np.bincount(which, minlength=bins)
    divisor = np.where(counts > 0, counts, np.nan)
    return ReliabilityDiagram(
        edges=bin_edges(bins),
        counts=counts,
        confidence=np.bincount(which, weights=confidence, minlength=bins) / divisor,
        accuracy=np.bincount(which, weights=correct, minlength=bins) / divisor,
    )


def bin_edges(bins: int) -> FloatArray:
    """Returns the edges of equal-width bins on (0,1], [bins + 1]."""
    # Each edge is the float nearest to k / bins, which is also what a confidence written 0.2 is.
    return np.arange(bins + 1) / bins


def equal_width_bins(confidence: FloatArray, bins: int) -> IntArray:
    """Returns the bin of each confidence, [N] in 0..bins-1; an edge belongs to the bin on its left, 0 to the first."""
    return np.maximum(np.searchsorted(bin_edges(bins), confidence, side="left") - 1, 0)


def equal_mass_bins(counts: IntArray, bins: int) -> IntArray:
    """Returns the bin of each distinct confidence, [levels] in 0..bins-1, so that bins hold equally many samples.

    Without ties the bins are those of `numpy.array_split`; a tie across an edge falls whole to the left.

    Args:
        counts: [levels] samples at each distinct confidence, ascending; may hold zeros.
    """
    size, larger = divmod(int(counts.sum()), bins)
    starts = np.arange(bins) * size + np.minimum(np.arange(bins), larger)
    return np.searchsorted(starts, np.cumsum(counts) - counts, side="right") - 1


def binned_gap(which: IntArray, gaps: FloatArray, samples: int) -> float:
    """Returns the sum over bins of |summed gap between correctness and confidence| over the number of samples.

    Args:
        which: [entries] the bin of each.
        gaps: [entries] correct - confidence of one sample, or summed over several.
        samples: N.
    """
    return float(np.abs(np.bincount(which, weights=gaps)).sum() / samples)
