"""Metrics as OpenOOD 1.5 defines them.

AUPR is the trapezoid under the precision-recall curve; FPR95 is read off a ROC curve without its collinear points;
ensembles average logits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn import metrics as sklearn_metrics

from hydractl.metrics.calibration import ClassificationMetrics, classification_metrics
from hydractl.metrics.checks import FloatArray
from hydractl.metrics.ood_detection import OodMetrics, ood_metrics
from hydractl.metrics.table import PredictionTable


def trapezoidal_ood_metrics(id_scores: FloatArray, ood_scores: FloatArray) -> OodMetrics:
    """The detection metrics.

    Args:
        id_scores: [N] higher = more OOD.
        ood_scores: [N'] likewise.

    Raises:
        DataError: a set is empty or a score is not finite.
    """
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


def mean_logits_classification_metrics(table: PredictionTable, bins: int = 15) -> ClassificationMetrics:
    """Our metrics, but for the accuracy, which is that of the mean logits.

    Args:
        table: predictions of N samples with labels.
        bins: of confidence, for both calibration errors.

    Raises:
        DataError: the samples have no labels.
    """
    right = table.mean_logits_prediction == table.labelled().labels
    return replace(classification_metrics(table, bins), accuracy=float(right.mean()))
