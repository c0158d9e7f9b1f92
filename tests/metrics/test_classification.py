import math
from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from torchmetrics.functional.classification import multiclass_accuracy

from hydractl.errors import DataError
from hydractl.metrics import arrays as probabilities
from hydractl.metrics import classification
from hydractl.metrics.classification import PredictionTable, classification_metrics, reliability_diagram, tabulate
from hydractl.tasks.all_tasks import find_task

COLUMNS = [field.name for field in fields(PredictionTable) if field.name != "outcomes"]


def assert_same_bits(first, second):
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    assert (first.outcomes is None) == (second.outcomes is None)
    if first.outcomes is not None:
        for name in ("labels", "correct", "nll", "brier"):
            np.testing.assert_array_equal(getattr(first.outcomes, name), getattr(second.outcomes, name))


def test_samples_are_ranked_whose_msp_is_exactly_1():
    logits = np.array([[[9.0, 0, 0], [30, 0, 10], [20, 0, 1]]])
    table = tabulate(np.concatenate([logits, logits]), temperature=0.01)
    assert (table.msp == 1).all()
    assert table.doubt == pytest.approx([math.log(2) - 900, -2000, -1900], rel=1e-12)
    confidence = find_task("text-classification").judge(logits / 0.01, None, None).confidence
    assert confidence == pytest.approx(-table.doubt, rel=1e-12)


def test_equals_torch_and_scipy_in_float64(ensemble):
    logits, labels = ensemble
    table = tabulate(logits, labels)
    members = torch.from_numpy(logits).double().softmax(-1)
    mean = members.mean(0)
    target = torch.nn.functional.one_hot(torch.from_numpy(labels), 10)
    nll = torch.nn.functional.nll_loss(mean.log(), torch.from_numpy(labels), reduction="none")
    np.testing.assert_array_equal(table.prediction, mean.argmax(-1))
    np.testing.assert_array_equal(table.outcomes.correct, mean.argmax(-1).numpy() == labels)
    np.testing.assert_allclose(table.msp, mean.amax(-1), rtol=0, atol=1e-14)
    np.testing.assert_allclose(table.doubt, (1 - mean.amax(-1)).log(), rtol=1e-10)
    np.testing.assert_allclose(table.entropy, entropy(mean, axis=-1), rtol=0, atol=1e-12)
    expected = entropy(members, axis=-1).mean(0)
    np.testing.assert_allclose(table.expected_entropy, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(table.outcomes.nll, nll, rtol=0, atol=1e-12)
    np.testing.assert_allclose(table.outcomes.brier, (mean - target).square().sum(-1), rtol=0, atol=1e-14)


def test_the_split_into_chunks_and_calls_changes_no_bit(ensemble, monkeypatch):
    logits, labels = ensemble
    whole = tabulate(logits, labels)
    parts = [tabulate(logits[:, part], labels[part]) for part in (slice(0, 1), slice(1, 130), slice(130, 400))]
    assert_same_bits(whole, classification.in_order(parts, np.arange(400)))
    monkeypatch.setattr(probabilities, "_CHUNK_ELEMENTS", 3 * 10 * 7)
    assert_same_bits(whole, tabulate(logits, labels))


@pytest.mark.parametrize("members", [2, 3, 7])
def test_copies_of_a_network_are_that_network(ensemble, members):
    single, labels = ensemble[0][:1], ensemble[1]
    copies = tabulate(np.repeat(single, members, axis=0), labels)
    assert_same_bits(copies, tabulate(single, labels))
    assert (copies.mutual_information == 0).all()


def test_disagreement_is_the_share_of_pairs():
    logits = np.eye(4)[np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2], [0, 1, 3]])]
    assert tabulate(logits).disagreement == pytest.approx([0, 4 / 6, 1], abs=1e-15)


def test_an_offset_common_to_all_classes_costs_no_digits():
    table = tabulate(np.array([[[131072.0, 131072.0]]], dtype=np.float32), np.array([1]))
    assert table.outcomes.nll == pytest.approx([math.log(2)], abs=1e-15)


def test_many_members_never_leave_the_range(generator):
    logits = generator.normal(scale=30, size=(11, 2000, 5))
    table = tabulate(logits, logits.mean(0).argmax(-1))
    assert table.msp.max() <= 1
    assert table.mutual_information.min() >= 0
    assert not np.signbit(table.outcomes.nll).any()
    assert (table.mutual_information <= math.log(5)).all()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 1]), "for 3 samples"),
        (np.array([0.0, 1.0, 1.0]), "type float64"),
        (np.array([0, 1, 2]), "sample 2 has label 2: expected 0 to 1"),
        (np.array([0, -1, 1]), "sample 1 has label -1"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    with pytest.raises(DataError, match=message):
        tabulate(np.zeros((1, 3, 2)), labels)


def metrics_of(confidence, correct, bins=15):
    columns = dict.fromkeys(COLUMNS, np.zeros(len(correct))) | {"msp": confidence}
    outcomes = classification.Outcomes(np.zeros(len(correct), np.int64), correct, *np.zeros((2, len(correct))))
    return classification_metrics(PredictionTable(**columns, outcomes=outcomes), bins)


def test_calibration_errors_by_hand():
    correct = np.array([True, False, True, True])
    # Two bins of two: |0.5 - 0.95| and |1 - 0.55|, each half of the samples.
    assert metrics_of(np.array([0.95, 0.95, 0.55, 0.55]), correct).ece == pytest.approx(0.45, abs=1e-15)
    # Two bins of equal mass: 0.6, 0.7 (gap 0.4 + 0.3) and 0.8, 0.9 (gap -0.8 + 0.1).
    adaptive = metrics_of(np.array([0.9, 0.8, 0.7, 0.6]), correct, bins=2).adaptive_ece
    assert adaptive == pytest.approx(1.4 / 4, abs=1e-15)
    # Halves would split 0.8; the tie begins in the left half and stays there with 0.5.
    tied = metrics_of(np.array([0.5, 0.8, 0.8, 0.8]), np.array([True, True, False, True]), bins=2).adaptive_ece
    assert tied == pytest.approx(0.1 / 4, abs=1e-15)


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [(1.0, 14), (np.nextafter(1, 0), 14), (14 / 15, 13), (0.2, 2), (0.6, 8), (np.nextafter(1 / 15, 1), 1), (0.0, 0)],
)
def test_bins_are_closed_on_the_right(confidence, expected):
    assert classification.equal_width_bins(np.array([confidence]), 15).tolist() == [expected]


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


def test_numbers_by_class_equal_scikit_learn():
    draw = np.random.default_rng(0)
    labels, names = draw.integers(0, 4, 200), ("cat", "dog", "fox", "cow", "owl", "never")
    logits = draw.normal(size=(2, 200, 6)) + 2 * np.eye(6)[labels]
    logits[..., 5] = -9
    table, flags = tabulate(logits, labels), draw.random(200) < 0.1
    found = classification.numbers_of_classes(table, names, flags)
    assert list(found) == list(names[:5])  # an owl is answered, and never right
    counts = confusion_matrix(labels, table.prediction, labels=range(5))
    assert [[one.answers.get(name, 0) for name in names[:5]] for one in found.values()] == counts.tolist()
    theirs = precision_recall_fscore_support(labels, table.prediction, labels=range(5), zero_division=0)
    precision, recall, _, samples = theirs
    assert [one.samples for one in found.values()] == samples.tolist()
    assert [one.precision for one in found.values()] == pytest.approx(precision)
    assert [one.recall for one in list(found.values())[:4]] == pytest.approx(recall[:4])
    assert (found["owl"].recall, found["owl"].confidence, found["owl"].flagged) == (None, None, None)
    for label in range(4):
        assert found[names[label]].confidence == pytest.approx(table.msp[labels == label].mean())
        assert found[names[label]].flagged == pytest.approx(flags[labels == label].mean())
    assert classification.numbers_of_classes(table, names, None)["cat"].flagged is None
