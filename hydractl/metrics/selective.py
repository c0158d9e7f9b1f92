"""Errors: abstain where confidence is least and see what the rest is worth, or tell which predictions are wrong."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hydractl.errors import OptionError
from hydractl.metrics.checks import FloatArray, check_scores
from hydractl.metrics.ood_detection import OodMetrics, ood_metrics


@dataclass(frozen=True)
class SelectiveMetrics:
    """Accuracy and risk of the most confident predictions."""

    aurc: float  # area under the risk-coverage curve, 0..1, lower is better
    accuracy_at_coverage: tuple[tuple[float, float], ...]  # (coverage, accuracy of the most confident share)


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


def selective_metrics(
    confidence: NDArray[np.floating],
    correct: NDArray[np.bool_],
    coverages: tuple[float, ...] = (0.7, 0.8, 0.9, 0.95),
) -> SelectiveMetrics:
    """Returns AURC and the accuracy at each coverage.

    Args:
        confidence: [N] higher = answered first.
        correct: [N] booleans.
        coverages: shares of the samples to answer, in (0,1].

    Raises:
        DataError: empty or not finite.
        OptionError: a coverage outside (0,1].
    """
    curve = risk_coverage(confidence, correct)
    return SelectiveMetrics(
        aurc=float(curve.risk.mean()),
        accuracy_at_coverage=tuple((share, _accuracy_at(curve, share)) for share in coverages),
    )


def risk_coverage(confidence: NDArray[np.floating], correct: NDArray[np.bool_]) -> RiskCoverage:
    """Returns the risk-coverage curve; AURC is the mean of its risks.

    Tied samples enter in the mean over all their orders, so the curve depends on no order of the data.

    Args:
        confidence: [N] higher = answered first.
        correct: [N] booleans.

    Raises:
        DataError: empty or not finite.

    Source: Geifman et al. 2019.
    """
    values = check_scores(confidence, "confidence")
    _, ranks, counts = np.unique(-values, return_inverse=True, return_counts=True)
    errors = np.bincount(ranks, weights=~correct)
    answered = np.arange(1, values.size + 1)
    ends = np.insert(np.cumsum(counts), 0, 0)
    wrong = np.interp(answered, ends, np.insert(np.cumsum(errors), 0, 0.0))
    return RiskCoverage(coverage=answered / values.size, risk=wrong / answered)


def aurc(confidence: NDArray[np.floating], correct: NDArray[np.bool_]) -> float:
    """Returns the area under the risk-coverage curve, 0..1, lower is better."""
    return float(risk_coverage(confidence, correct).risk.mean())


def error_metrics(
    scores: NDArray[np.floating],
    correct: NDArray[np.bool_],
    detection: Callable[[FloatArray, FloatArray], OodMetrics] = ood_metrics,
) -> ErrorMetrics | None:
    """Returns AUROC (ties one half), AUPR and FPR95 of a score for errors; None where all are right or all are wrong.

    Args:
        scores: [N] higher = more likely wrong.
        correct: [N] booleans.
        detection: by whose definitions a score of negatives and positives is judged.

    Raises:
        DataError: empty or not finite.

    Source: Hendrycks & Gimpel 2017.
    """
    doubt = check_scores(scores, "score")
    if correct.all() or not correct.any():
        return None
    found = detection(doubt[correct], doubt[~correct])
    return ErrorMetrics(found.auroc, found.aupr_out, found.fpr95)


def _accuracy_at(curve: RiskCoverage, coverage: float) -> float:
    if not 0 < coverage <= 1:
        raise OptionError(f"coverage {coverage}: expected above 0 and at most 1")
    # 0.07 * 100 is a little over 7: the rounding keeps that from answering an eighth sample.
    answered = int(np.ceil(round(coverage * curve.risk.size, 9)))
    return float(1.0 - curve.risk[answered - 1])
