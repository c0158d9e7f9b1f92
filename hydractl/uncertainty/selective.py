"""Selective prediction: abstain on the least confident samples, and see what the rest is worth."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hydractl.errors import OptionError
from hydractl.uncertainty.checks import FloatArray, check_scores
from hydractl.uncertainty.ood_detection import count_scores, metrics_from_counts
from hydractl.uncertainty.table import PredictionTable


@dataclass(frozen=True)
class SelectiveMetrics:
    """How well confidence (MSP) tells right from wrong predictions."""

    aurc: float  # area under the risk-coverage curve, 0..1, lower is better
    accuracy_at_coverage: tuple[tuple[float, float], ...]  # (coverage, accuracy of the most confident share)
    misclassification_auroc: float | None  # errors positive; None where all are right or all are wrong


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The error rate of the k most confident samples, k = 1..N."""

    coverage: FloatArray  # [N], k / N
    risk: FloatArray  # [N], 0..1


def selective_metrics(table: PredictionTable, coverages: tuple[float, ...] = (0.7, 0.8, 0.9, 0.95)) -> SelectiveMetrics:
    """AURC, accuracy at each coverage, and the AUROC of telling errors from right predictions.

    Args:
        table: predictions of N samples with labels.
        coverages: shares of the samples to answer, in (0,1].

    Raises:
        DataError: the samples have no labels.
        OptionError: a coverage outside (0,1].
    """
    correct = table.labelled().correct
    curve = risk_coverage(table.msp, correct)
    return SelectiveMetrics(
        aurc=float(curve.risk.mean()),
        accuracy_at_coverage=tuple((share, _accuracy_at(curve, share)) for share in coverages),
        misclassification_auroc=misclassification_auroc(table.msp, correct),
    )


def risk_coverage(confidence: NDArray[np.floating], correct: NDArray[np.bool_]) -> RiskCoverage:
    """The risk-coverage curve; AURC is the mean of its risks.

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


def misclassification_auroc(confidence: NDArray[np.floating], correct: NDArray[np.bool_]) -> float | None:
    """The chance that an error is less confident than a right prediction, ties one half; None without both.

    Args:
        confidence: [N] higher = surer.
        correct: [N] booleans.

    Raises:
        DataError: empty or not finite.
    """
    doubt = -check_scores(confidence, "confidence")
    if correct.all() or not correct.any():
        return None
    _, right, wrong = count_scores(doubt[correct], doubt[~correct])
    return metrics_from_counts(right, wrong).auroc


def _accuracy_at(curve: RiskCoverage, coverage: float) -> float:
    if not 0 < coverage <= 1:
        raise OptionError(f"coverage {coverage}: expected above 0 and at most 1")
    # 0.07 * 100 is a little over 7: the rounding keeps that from answering an eighth sample.
    answered = int(np.ceil(round(coverage * curve.risk.size, 9)))
    return float(1.0 - curve.risk[answered - 1])
