"""What other tools compute under the same names, so that their published numbers can be compared with.

openood: OpenOOD 1.5. Ensembles average logits; AUPR is the trapezoid under the precision-recall curve; FPR95
is read off a ROC curve without its collinear points.
torch-uncertainty: as of 0.13. Entropy is the members' mean; calibration bins are closed on the left and 1 has
its own; equal-mass bins split ties; AURC is a trapezoid over coverages from 1/N.
torch-uncertainty-legacy: older releases, whose FPR95 takes the recall nearest to 95 %, on either side of it.
All agree with the tool to its own rounding: both compute in float32.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics as sklearn_metrics

from hydractl.errors import DataError
from hydractl.uncertainty.calibration import (
    ClassificationMetrics,
    bin_edges,
    binned_gap,
    classification_metrics,
)
from hydractl.uncertainty.checks import FloatArray, check_confidences
from hydractl.uncertainty.ood_detection import OodMetrics, count_scores, ood_metrics
from hydractl.uncertainty.ood_scores import OodScore, ood_scores
from hydractl.uncertainty.selective import risk_coverage
from hydractl.uncertainty.table import PredictionTable

Style = Literal["hydractl", "openood", "torch-uncertainty", "torch-uncertainty-legacy"]


def styled_ood_scores(table: PredictionTable, score: OodScore, style: Style) -> FloatArray:
    """The score of each sample as a tool defines it, [N] float64, higher = more OOD.

    Args:
        table: predictions of N samples.
        score: its name.
        style: whose definition.

    Raises:
        DataError: the tool has no such score.
    """
    if style == "openood":
        if score == "msp":
            return -table.mean_logits_msp
        if score in ("entropy", "mutual-information"):
            raise DataError(f"OpenOOD has no score {score} of an ensemble: use msp, max-logit or energy")
    if style.startswith("torch-uncertainty") and score == "entropy":
        return table.expected_entropy
    return ood_scores(table, score)


def styled_ood_metrics(id_scores: NDArray[np.floating], ood_scores: NDArray[np.floating], style: Style) -> OodMetrics:
    """The detection metrics as a tool computes them.

    Args:
        id_scores: [N] higher = more OOD.
        ood_scores: [N'] likewise.
        style: whose definitions.

    Raises:
        DataError: a set is empty or a score is not finite.
    """
    ours = ood_metrics(id_scores, ood_scores)
    match style:
        case "openood":
            return _openood_metrics(ours, id_scores, ood_scores)
        case "torch-uncertainty-legacy":
            return replace(ours, fpr95=fpr95_at_nearest_recall(id_scores, ood_scores))
        case _:
            return ours


def styled_classification_metrics(table: PredictionTable, style: Style, bins: int = 15) -> ClassificationMetrics:
    """The classification metrics as a tool computes them; what it does not define stays ours.

    Args:
        table: predictions of N samples with labels.
        style: whose definitions.
        bins: of confidence, for both calibration errors.

    Raises:
        DataError: the samples have no labels.
    """
    ours = classification_metrics(table, bins)
    outcomes = table.labelled()
    match style:
        case "openood":
            return replace(ours, accuracy=float((table.mean_logits_prediction == outcomes.labels).mean()))
        case "torch-uncertainty" | "torch-uncertainty-legacy":
            return replace(
                ours,
                ece=left_closed_calibration_error(table.msp, outcomes.correct, bins),
                adaptive_ece=tie_splitting_calibration_error(table.msp, outcomes.correct, bins),
            )
        case _:
            return ours


def styled_aurc(table: PredictionTable, style: Style) -> float:
    """The area under the risk-coverage curve as a tool computes it, 0..1, lower is better.

    Args:
        table: predictions of N samples with labels, N >= 2 for a trapezoid.
        style: whose definition.

    Raises:
        DataError: the samples have no labels, or one sample has no trapezoid.
    """
    curve = risk_coverage(table.msp, table.labelled().correct)
    if not style.startswith("torch-uncertainty"):
        return float(curve.risk.mean())
    if curve.risk.size < 2:
        raise DataError("a trapezoidal AURC needs at least two samples")
    return float(np.trapezoid(curve.risk, curve.coverage) / (1 - curve.coverage[0]))


def fpr95_at_nearest_recall(id_scores: NDArray[np.floating], ood_scores: NDArray[np.floating]) -> float:
    """The share of ID flagged at the threshold whose share of OOD is nearest to 95 %, above or below.

    Args:
        id_scores: [N] higher = more OOD.
        ood_scores: [N'] likewise.

    Raises:
        DataError: a set is empty or a score is not finite.
    """
    _, id_counts, ood_counts = count_scores(id_scores, ood_scores)
    flagged_id, flagged_ood = np.cumsum(id_counts[::-1]), np.cumsum(ood_counts[::-1])
    last = int(np.searchsorted(flagged_ood, flagged_ood[-1]))
    # From the laxest threshold up, as theirs: of thresholds with one recall, the one that flags most ID.
    recall = flagged_ood[last::-1] / flagged_ood[-1]
    nearest = int(np.argmin(np.abs(recall - 0.95)))
    return float(flagged_id[last - nearest] / flagged_id[-1])


def left_closed_calibration_error(
    confidence: NDArray[np.floating], correct: NDArray[np.bool_], bins: int = 15
) -> float:
    """The expected calibration error over bins [left, right), where a confidence of 1 has a bin of its own.

    Args:
        confidence: [N] in [0,1].
        correct: [N] booleans.
        bins: how many.

    Raises:
        DataError: empty, of different lengths, or outside [0,1].
    """
    confidence, correct = check_confidences(confidence, correct)
    which = np.searchsorted(bin_edges(bins), confidence, side="right") - 1
    return binned_gap(which, correct - confidence, confidence.size)


def tie_splitting_calibration_error(
    confidence: NDArray[np.floating], correct: NDArray[np.bool_], bins: int = 15
) -> float:
    """The adaptive calibration error over bins of equal size that split ties in the order of the data.

    Args:
        confidence: [N] in [0,1].
        correct: [N] booleans.
        bins: how many.

    Raises:
        DataError: empty, of different lengths, or outside [0,1].
    """
    confidence, correct = check_confidences(confidence, correct)
    gaps = (correct - confidence)[np.argsort(confidence, kind="stable")]
    return float(sum(abs(part.sum()) for part in np.array_split(gaps, bins)) / confidence.size)


def _openood_metrics(ours: OodMetrics, id_scores: NDArray[np.floating], ood_scores: NDArray[np.floating]) -> OodMetrics:
    scores = np.concatenate([id_scores, ood_scores])
    is_ood = np.repeat([0, 1], [len(id_scores), len(ood_scores)])
    false_positive, true_positive, _ = sklearn_metrics.roc_curve(is_ood, scores)
    precision_out, recall_out, _ = sklearn_metrics.precision_recall_curve(is_ood, scores)
    precision_in, recall_in, _ = sklearn_metrics.precision_recall_curve(1 - is_ood, -scores)
    return replace(
        ours,
        aupr_out=float(sklearn_metrics.auc(recall_out, precision_out)),
        aupr_in=float(sklearn_metrics.auc(recall_in, precision_in)),
        fpr95=float(false_positive[np.argmax(true_positive >= 0.95)]),
    )
