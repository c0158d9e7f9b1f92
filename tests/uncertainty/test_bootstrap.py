from dataclasses import asdict, fields

import numpy as np
import pytest

from hydractl.errors import DataError, OptionError
from hydractl.uncertainty.bootstrap import (
    bootstrap,
    classification_replicates,
    ood_replicates,
    percentile_interval,
)
from hydractl.uncertainty.calibration import (
    ClassificationMetrics,
    adaptive_calibration_error,
    expected_calibration_error,
)
from hydractl.uncertainty.ood_detection import OodMetrics, ood_metrics
from hydractl.uncertainty.table import tabulate


def test_one_sample_leaves_nothing_to_chance():
    values = bootstrap(lambda positions: [float(len(positions)), float(positions[0])], [1], replicates=3)

    assert values.tolist() == [[1, 0]] * 3


def test_the_interval_of_a_mean_is_the_normal_one(generator):
    data = generator.normal(size=2000)
    values = bootstrap(lambda positions: [float(data[positions].mean())], [2000], replicates=4000)
    interval = percentile_interval(values[:, 0])
    half_width = 1.96 * data.std() / np.sqrt(2000)

    assert interval.low == pytest.approx(data.mean() - half_width, abs=0.1 * half_width)
    assert interval.high == pytest.approx(data.mean() + half_width, abs=0.1 * half_width)


def test_percentiles_by_hand():
    interval = percentile_interval(np.arange(101.0), level=0.9)

    assert (interval.low, interval.high) == (pytest.approx(5), pytest.approx(95))


def test_classification_replicates_are_the_metrics_of_resampled_data(ensemble):
    # Rounded logits, so that confidences tie.
    logits, labels = ensemble[0][:1].round(), ensemble[1]
    table = tabulate(logits, labels)
    ours = classification_replicates(table, replicates=20, seed=3)

    def of_resampled(positions):
        correct = table.outcomes.correct[positions]
        return [
            float(correct.mean()),
            float(table.outcomes.brier[positions].mean()),
            float(table.outcomes.nll[positions].mean()),
            expected_calibration_error(table.msp[positions], correct),
            adaptive_calibration_error(table.msp[positions], correct),
        ]

    expected = bootstrap(of_resampled, [400], replicates=20, seed=3)
    names = [field.name for field in fields(ClassificationMetrics)]
    assert list(ours) == names
    np.testing.assert_allclose(np.stack(list(ours.values()), axis=1), expected, rtol=0, atol=1e-13)


def test_ood_replicates_are_the_metrics_of_resampled_data(generator):
    id_scores, ood_scores = generator.normal(size=80).round(1), generator.normal(1, size=50).round(1)
    ours = ood_replicates(id_scores, ood_scores, replicates=20, seed=3)

    def of_resampled(inside, outside):
        return list(asdict(ood_metrics(id_scores[inside], ood_scores[outside])).values())

    expected = bootstrap(of_resampled, [80, 50], replicates=20, seed=3)
    assert list(ours) == [field.name for field in fields(OodMetrics)]
    np.testing.assert_allclose(np.stack(list(ours.values()), axis=1), expected, rtol=0, atol=1e-13)


def test_the_seed_decides(generator):
    scores = generator.normal(size=50), generator.normal(size=50)
    first, again = (ood_replicates(*scores, replicates=10, seed=1)["auroc"] for _ in range(2))

    np.testing.assert_array_equal(first, again)
    assert (first != ood_replicates(*scores, replicates=10, seed=2)["auroc"]).any()


def test_replicates_of_two_systems_are_paired(generator):
    # The second system is right wherever the first is, and on 40 samples more.
    first = np.zeros((1, 400, 2))
    first[0, :300, 0] = 1
    first[0, 300:, 1] = 1
    second = first.copy()
    second[0, 300:340] = [1, 0]
    labels = np.zeros(400, dtype=int)
    accuracies = [
        classification_replicates(tabulate(logits, labels), replicates=500)["accuracy"] for logits in (first, second)
    ]
    paired = percentile_interval(accuracies[1] - accuracies[0])

    # Every resample favours the second: paired, its gain is Binomial(400, 0.1) / 400.
    assert (accuracies[1] >= accuracies[0]).all()
    assert paired.low == pytest.approx(0.1 - 1.96 * np.sqrt(0.1 * 0.9 / 400), abs=0.006)
    assert paired.high == pytest.approx(0.1 + 1.96 * np.sqrt(0.1 * 0.9 / 400), abs=0.006)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(DataError, match="without samples"):
        bootstrap(lambda positions: [0.0], [0])
    with pytest.raises(OptionError, match="0 bootstrap replicates"):
        bootstrap(lambda positions: [0.0], [3], replicates=0)
    with pytest.raises(OptionError, match="level"):
        percentile_interval(np.zeros(3), level=1.0)
    with pytest.raises(DataError, match="need labels"):
        classification_replicates(tabulate(np.zeros((1, 2, 3))))
