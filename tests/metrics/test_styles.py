import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc, precision_recall_curve, roc_curve
from torchmetrics.functional.classification import multiclass_calibration_error

from hydractl.errors import DataError
from hydractl.metrics.ood_detection import ood_metrics
from hydractl.metrics.other_tools import (
    left_closed_calibration_error,
    tie_splitting_calibration_error,
    trapezoidal_ood_metrics,
)
from hydractl.metrics.prediction_table import tabulate
from hydractl.metrics.styles import find_style
from hydractl.ood.ood_scores import find_ood_score

OPENOOD, THEIRS = map(find_style, ("openood", "torch-uncertainty"))
SCORES = st.lists(st.integers(-3, 3).map(float) | st.floats(-1e3, 1e3), min_size=1, max_size=30)


@given(SCORES, SCORES)
def test_openood_is_what_it_asks_of_scikit_learn(id_scores, ood_scores):
    styled = trapezoidal_ood_metrics(np.array(id_scores), np.array(ood_scores))
    is_ood = np.repeat([0, 1], [len(id_scores), len(ood_scores)])
    scores = np.array([*id_scores, *ood_scores])
    false_positive, true_positive, _ = roc_curve(is_ood, scores)

    assert styled.auroc == pytest.approx(auc(false_positive, true_positive), abs=1e-12)
    assert styled.fpr95 == pytest.approx(false_positive[np.argmax(true_positive >= 0.95)], abs=1e-12)
    for positive, ranked, found in ((is_ood, scores, styled.aupr_out), (1 - is_ood, -scores, styled.aupr_in)):
        precision, recall, _ = precision_recall_curve(positive, ranked)
        assert found == pytest.approx(auc(recall, precision), abs=1e-12)


def test_openood_passes_over_a_collinear_point():
    # At 90, 95 and 100 % of OOD the curve goes two ID to the right for two OOD up: the middle point is dropped.
    id_scores = ood_scores = np.repeat([2.0, 1.0, 0.0], [36, 2, 2])

    assert ood_metrics(id_scores, ood_scores).fpr95 == 0.95
    assert OPENOOD.ood_metrics(id_scores, ood_scores).fpr95 == 1


def test_openood_averages_logits(ensemble):
    logits, labels = ensemble
    table = tabulate(logits, labels)
    confidence, prediction = torch.from_numpy(logits).double().mean(0).softmax(-1).max(-1)

    np.testing.assert_allclose(OPENOOD.scores["msp"](table), -confidence, rtol=0, atol=1e-14)
    accuracy = float((prediction.numpy() == labels).mean())
    assert OPENOOD.classification_metrics(table).accuracy == accuracy
    for score in ("entropy", "mutual-information"):
        with pytest.raises(DataError, match="openood has no score"):
            OPENOOD.require(find_ood_score(score))


def test_calibration_equals_torchmetrics_on_the_edges():
    # Exact in float32; 0.5, 0.75 and 1 lie on edges of four bins, each with a neighbour inside.
    confidence = np.array([1.0, 0.875, 0.75, 0.625, 0.5, 0.4375])
    probabilities = np.stack([confidence, *[(1 - confidence) / 3] * 3], axis=1)
    labels = np.array([1, 0, 0, 0, 2, 0])
    theirs = multiclass_calibration_error(
        torch.from_numpy(probabilities), torch.from_numpy(labels), num_classes=4, n_bins=4
    )

    ours = left_closed_calibration_error(confidence, labels == 0, bins=4)
    assert ours == pytest.approx(float(theirs), abs=1e-7)
    # By hand: [0.25,0.5) 0.5625; [0.5,0.75) 0.375 - 0.5; [0.75,1) 0.125 + 0.25; 1 alone.
    assert ours == pytest.approx((0.5625 + 0.125 + 0.375 + 1) / 6, abs=1e-15)


def test_adaptive_calibration_equals_torch_uncertainty_with_ties(torch_uncertainty):
    # Each tie is of one outcome, so that their unstable sort cannot matter.
    confidence = np.repeat([0.5, 0.625, 0.75, 0.875], [5, 4, 7, 3])
    correct = np.repeat([True, False, True, False], [5, 4, 7, 3])
    probabilities = torch.from_numpy(np.stack([confidence, 1 - confidence], axis=1))
    metric = torch_uncertainty.AdaptiveCalibrationError(task="multiclass", num_classes=2, num_bins=4)
    metric.update(probabilities, torch.from_numpy(np.where(correct, 0, 1)))

    ours = tie_splitting_calibration_error(confidence, correct, bins=4)
    assert ours == pytest.approx(float(metric.compute()), abs=1e-6)


def test_a_table_in_torch_uncertainty_style_equals_it(ensemble, torch_uncertainty):
    logits, labels = ensemble
    table = tabulate(logits, labels)
    mean = torch.from_numpy(logits).double().softmax(-1).mean(0)
    styled = THEIRS.classification_metrics(table)
    ece = torch_uncertainty.CalibrationError(task="multiclass", num_classes=10, num_bins=15)
    adaptive = torch_uncertainty.CalibrationError(task="multiclass", num_classes=10, num_bins=15, adaptive=True)
    their_aurc = torch_uncertainty.AURC()

    for ours, metric in (
        (styled.ece, ece),
        (styled.adaptive_ece, adaptive),
        (THEIRS.aurc(table.msp, table.labelled().correct), their_aurc),
    ):
        metric.update(mean, torch.from_numpy(labels))
        assert ours == pytest.approx(float(metric.compute()), abs=2e-6)


def test_entropy_in_torch_uncertainty_style_is_the_mean_of_the_members(ensemble, torch_uncertainty):
    table = tabulate(ensemble[0])
    metric = torch_uncertainty.Entropy(reduction="none")
    metric.update(torch.from_numpy(ensemble[0]).double().softmax(-1).transpose(0, 1))

    ours = THEIRS.scores["entropy"](table)
    np.testing.assert_allclose(ours, metric.compute(), rtol=0, atol=1e-12)
    assert (ours < table.entropy).any()
