"""Errors: abstain where confidence is least and see what the rest is worth, or tell which predictions are wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from hydractl.metrics.checks import BoolArray, FloatArray
from hydractl.metrics.ood_detection import ood_metrics

COVERAGES = (0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class ErrorMetrics:
    """Metrics of error detection, 0..1; errors are the positive class."""

    misclassification_auroc: float
    misclassification_aupr: float  # average precision; a blind score's is the error rate
    misclassification_fpr95: float  # share of right ones flagged when at least 95 % of errors are; lower is better


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The error rate of the k most confident samples, k = 1..N."""

    coverage: FloatArray  # [N], k / N
    risk: FloatArray  # [N], 0..1


def risk_coverage(confidence: NDArray[np.floating], correct: BoolArray) -> RiskCoverage:
    """Returns the risk-coverage curve; AURC is the mean of its risks.

    Tied samples enter in the mean over all their orders, so the curve depends on no order of the data.

    Args:
        confidence: [N] higher = answered first.
        correct: [N].

    Source: Geifman et al. 2019.
    """
    _, ranks, counts = np.unique(-confidence, return_inverse=True, return_counts=True)
    errors = np.bincount(ranks, weights=~correct)
    answered = np.arange(1, confidence.size + 1)
    ends = np.insert(np.cumsum(counts), 0, 0)
    wrong = np.interp(answered, ends, np.insert(np.cumsum(errors), 0, 0.0))
    return RiskCoverage(coverage=answered / confidence.size, risk=wrong / answered)


def aurc(confidence: NDArray[np.floating], correct: BoolArray) -> float:
    """Returns the area under the risk-coverage curve, 0..1, lower is better."""
    return float(risk_coverage(confidence, correct).risk.mean())


def accuracy_at_coverage(
    confidence: NDArray[np.floating], correct: BoolArray, coverages: Sequence[float] = COVERAGES
) -> dict[float, float]:
    """Returns the accuracy of the most confident share of the samples, for each of some shares in (0,1]."""
    risk = risk_coverage(confidence, correct).risk
    # 0.07 * 100 is a little over 7: the rounding keeps that from answering an eighth sample.
    answered = {share: int(np.ceil(round(share * risk.size, 9))) for share in coverages}
    return {share: float(1.0 - risk[count - 1]) for share, count in answered.items()}


def least_answers(accuracy: float) -> int:
    """Returns how many answers, all of them right, show an accuracy above 0 and below 1 with 95 % certainty.

    >>> least_answers(0.99), least_answers(0.9)
    (299, 29)
    """
    return ceil(round(log(0.05) / log(accuracy), 9))


def sure_from(confidence: FloatArray, correct: BoolArray, accuracy: float) -> float | None:
    """Returns the lowest confidence from which answers are right as often as wanted; None if there is none.

    Counts a share of right answers by its one-sided 95 % bound (Clopper & Pearson 1934), not as seen on the samples.

    Args:
        confidence: [N].
        correct: [N].
        accuracy: above 0 and below 1.

    >>> sure_from(np.repeat([0.1, 0.9], 100), np.repeat([False, True], 100), 0.97)
    0.9
    """
    from scipy.special import betaincinv

    levels, ranks = np.unique(-confidence, return_inverse=True)
    answered = np.bincount(ranks).cumsum()
    wrong = np.bincount(ranks, weights=~correct).cumsum()
    with np.errstate(invalid="ignore"):  # no right answer: a bound of nothing
        bounds = betaincinv(answered - wrong, wrong + 1, 0.05)
    enough = np.flatnonzero(bounds >= accuracy)
    return float(-levels[enough[-1]]) if enough.size else None


def error_metrics(scores: FloatArray, correct: BoolArray) -> ErrorMetrics | None:
    """Returns AUROC (ties one half), AUPR and FPR95 of a score for errors; None where all are right or all are wrong.

    Args:
        scores: [N] higher = more likely wrong.
        correct: [N].

    Source: Hendrycks & Gimpel 2017.
    """
    if correct.all() or not correct.any():
        return None
    detection = ood_metrics(scores[correct], scores[~correct])
    return ErrorMetrics(detection.auroc, detection.aupr_out, detection.fpr95)
