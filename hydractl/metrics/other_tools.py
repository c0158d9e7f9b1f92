"""Metrics as other tools define them: OpenOOD 1.5 and torch-uncertainty 0.13.

OpenOOD: AUPR is the trapezoid under the precision-recall curve; FPR95 is read off a ROC curve without its collinear
points; ensembles average logits.

torch-uncertainty: entropy is the members' mean; calibration bins are closed on the left and 1 has its own; equal-mass
bins split ties; AURC is a trapezoid over coverages from 1/N.

Each takes and raises what the function of ours does whose place it takes.
"""

from dataclasses import replace

import numpy as np

from hydractl.errors import DataError
from hydractl.metrics.calibration import BINS, ClassificationMetrics, bin_edges, binned_gap
from hydractl.metrics.calibration import classification_metrics as classification_metrics
from hydractl.metrics.checks import BoolArray, FloatArray
from hydractl.metrics.ood_detection import OodMetrics
from hydractl.metrics.ood_detection import ood_metrics as ood_metrics
from hydractl.metrics.prediction_table import PredictionTable
from hydractl.metrics.selective import aurc as aurc
from hydractl.metrics.selective import risk_coverage


def trapezoidal_ood_metrics(id_scores: FloatArray, ood_scores: FloatArray) -> OodMetrics:
    """Returns OpenOOD's detection metrics."""
    from sklearn import metrics as sklearn_metrics

    ours = ood_metrics(id_scores, ood_scores)
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


def mean_logits_classification_metrics(table: PredictionTable) -> ClassificationMetrics:
    """Returns our metrics, with the accuracy of the mean logits."""
    right = table.mean_logits_prediction == table.labelled().labels
    return replace(classification_metrics(table), accuracy=float(right.mean()))


def left_closed_classification_metrics(table: PredictionTable) -> ClassificationMetrics:
    """Returns our metrics, with torch-uncertainty's calibration errors."""
    correct = table.labelled().correct
    return replace(
        classification_metrics(table),
        ece=left_closed_calibration_error(table.msp, correct),
        adaptive_ece=tie_splitting_calibration_error(table.msp, correct),
    )


def left_closed_calibration_error(confidence: FloatArray, correct: BoolArray, bins: int = BINS) -> float:
    """Returns the expected calibration error over bins [left, right), where a confidence of 1 has a bin of its own."""
    which = np.searchsorted(bin_edges(bins), confidence, side="right") - 1
    return binned_gap(which, correct - confidence, confidence.size)


def tie_splitting_calibration_error(confidence: FloatArray, correct: BoolArray, bins: int = BINS) -> float:
    """Returns the adaptive calibration error over bins of equal size that split ties in the order of the data."""
    gaps = (correct - confidence)[np.argsort(confidence, kind="stable")]
    return float(sum(abs(part.sum()) for part in np.array_split(gaps, bins)) / confidence.size)


def trapezoidal_aurc(confidence: FloatArray, correct: BoolArray) -> float:
    """Returns the area under the risk-coverage curve as a trapezoid.

    Raises:
        DataError: there is one sample, which has no trapezoid.
    """
    curve = risk_coverage(confidence, correct)
    if curve.risk.size < 2:
        raise DataError("a trapezoidal AURC needs at least two samples")
    return float(np.trapezoid(curve.risk, curve.coverage) / (1 - curve.coverage[0]))
