import numpy as np
import pytest

from hydractl.metrics.conformal import ClassSets, ConformalMetrics, least_probability, least_samples, prediction_sets


@pytest.mark.parametrize(
    ("count", "coverage", "rank"), [(9, 0.9, 9), (10, 0.9, 10), (19, 0.9, 18), (99, 0.95, 95), (4, 0.5, 3)]
)
def test_the_threshold_has_the_corrected_rank_from_above(count: int, coverage: float, rank: int) -> None:
    right = np.random.default_rng(0).random(count)
    assert least_probability(right, coverage) == np.sort(right)[::-1][rank - 1]


@pytest.mark.parametrize("coverage", [0.5, 0.75, 0.9, 0.95, 0.99, 0.999])
def test_a_promise_takes_so_many_samples_and_no_fewer(coverage: float) -> None:
    enough = least_samples(coverage)
    assert least_probability(np.ones(enough), coverage) == 1
    assert least_probability(np.ones(enough - 1), coverage) is None


def test_sets_by_hand() -> None:
    p = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.1, 0.45, 0.45], [0.4, 0.35, 0.25]])
    labels = np.array([0, 1, 2, 2])
    found = prediction_sets(p, labels, [0.3], 0.9, "abc")
    # Sets: ab, ab, bc, ab.
    by_class = {"a": ClassSets(1, 1.0, 2.0), "b": ClassSets(1, 1.0, 2.0), "c": ClassSets(2, 0.5, 2.0)}
    assert found == ConformalMetrics(0.75, 2.0, 0.9, worst_class=0.5, by_class=by_class)
    # With a probability for each class: the predicted one is in the set whatever its own.
    each = prediction_sets(p, labels, [0.6, 0.3, 0.2], 0.9, "abc")
    assert (each.coverage, each.mean_size) == (1.0, 2.75)  # abc, abc, bc, abc
