import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multiclass_accuracy

from hydractl.metrics.calibration import adaptive_calibration_error as adaptive_ece
from hydractl.metrics.calibration import classification_metrics, equal_width_bins, reliability_diagram
from hydractl.metrics.calibration import expected_calibration_error as ece
from hydractl.metrics.prediction_table import tabulate


def test_ece_by_hand():
    confidence = np.array([0.95, 0.95, 0.55, 0.55])
    correct = np.array([True, False, True, True])

    # Two bins of two: |0.5 - 0.95| and |1 - 0.55|, each half of the samples.
    assert ece(confidence, correct) == pytest.approx(0.45, abs=1e-15)


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [(1.0, 14), (np.nextafter(1, 0), 14), (14 / 15, 13), (0.2, 2), (0.6, 8), (np.nextafter(1 / 15, 1), 1), (0.0, 0)],
)
def test_bins_are_closed_on_the_right(confidence, expected):
    assert equal_width_bins(np.array([confidence]), 15).tolist() == [expected]


def test_adaptive_ece_by_hand():
    confidence = np.array([0.9, 0.8, 0.7, 0.6])
    correct = np.array([True, False, True, True])

    # Two bins of equal mass: 0.6, 0.7 (gap 0.4 + 0.3) and 0.8, 0.9 (gap -0.8 + 0.1).
    assert adaptive_ece(confidence, correct, bins=2) == pytest.approx(1.4 / 4, abs=1e-15)


def test_adaptive_ece_keeps_ties_together():
    confidence = np.array([0.5, 0.8, 0.8, 0.8])
    correct = np.array([True, True, False, True])

    # Halves would split 0.8; the tie begins in the left half and stays there with 0.5.
    assert adaptive_ece(confidence, correct, bins=2) == pytest.approx(0.1 / 4, abs=1e-15)


def test_metrics_of_a_table_equal_the_oracles(ensemble, torch_uncertainty):
    logits, labels = ensemble
    ours = classification_metrics(tabulate(logits, labels))
    mean = torch.from_numpy(logits).double().softmax(-1).mean(0)
    target = torch.from_numpy(labels)
    their = {
        "brier": torch_uncertainty.BrierScore(num_classes=10),
        "nll": torch_uncertainty.CategoricalNLL(),
        "ece": torch_uncertainty.CalibrationError(task="multiclass", num_classes=10, num_bins=15),
        "adaptive_ece": torch_uncertainty.AdaptiveCalibrationError(task="multiclass", num_classes=10, num_bins=15),
    }

    for name, metric in their.items():
        metric.update(mean, target)
        # They sum in float32.
        assert getattr(ours, name) == pytest.approx(float(metric.compute()), abs=2e-6), name
    accuracy = multiclass_accuracy(mean, target, num_classes=10, average="micro")
    assert ours.accuracy == pytest.approx(float(accuracy), abs=1e-7)


def test_reliability_diagram_by_hand():
    diagram = reliability_diagram(np.array([1.0, 0.5, 0.5, 0.4]), np.array([True, True, False, True]), bins=2)

    assert diagram.edges.tolist() == [0, 0.5, 1]
    assert diagram.counts.tolist() == [3, 1]
    assert diagram.confidence == pytest.approx([1.4 / 3, 1], abs=1e-15)
    assert diagram.accuracy == pytest.approx([2 / 3, 1], abs=1e-15)
