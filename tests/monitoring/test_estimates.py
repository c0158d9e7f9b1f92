from dataclasses import replace

import numpy as np
import pytest
from scipy.special import beta

from hydractl.checkpoint.calibration import Baseline
from hydractl.monitoring.estimates import NORMAL, Confidence, class_shares, estimates, labelled_accuracy, likely


def test_estimates_by_hand() -> None:
    known = Baseline(samples=98, accuracy=0.5, confidence=0.6, threshold=0.7, labels=(49, 49))
    found = estimates(Confidence(n=4, total=2.8, squares=2.0, above=1), known)
    assert found["mean confidence"].value == pytest.approx(0.5 + 0.7 - 0.6)
    wide = NORMAL * (0.25 / 98 + (0.5 - 0.49) / 4) ** 0.5
    assert found["mean confidence"].high == pytest.approx(0.6 + wide)
    assert found["ATC"].value == 0.25
    tied = replace(known, threshold=1.0, above=0.7)  # a fifth more samples have an MSP of 1 than are right
    assert estimates(Confidence(n=4, total=4.0, squares=4.0, above=4), tied)["ATC"].value == pytest.approx(0.8)
    assert estimates(Confidence(4, 2.8, 2.0, 0), None).keys() == {"mean confidence"}
    assert estimates(Confidence(0, 0, 0, 0), known) == {}


@pytest.mark.parametrize(("right", "labelled"), [(9, 10), (0, 3), (5, 5), (600, 1000)])
def test_the_ends_of_a_confidence_sequence_are_where_bets_have_won_twenty(right: int, labelled: int) -> None:
    found = labelled_accuracy(right, labelled)
    wrong = labelled - right
    for end in {found.low, found.high} - {0.0, 1.0}:
        assert beta(right + 1, wrong + 1) / (end**right * (1 - end) ** wrong) == pytest.approx(20, rel=1e-3)
    assert (found.low == 0) == (right == 0) and (found.high == 1) == (wrong == 0)


def test_a_confidence_sequence_holds_after_every_label() -> None:
    random, missed = np.random.default_rng(0), 0
    for _ in range(100):
        right = np.cumsum(random.random(200) < 0.8)
        every = [labelled_accuracy(int(count), at) for at, count in enumerate(right, 1)]
        missed += any(not one.low <= 0.8 <= one.high for one in every)
    assert missed <= 5


def drawn(shares: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Exact probabilities, for even shares, of inputs from classes of these shares: Gaussians around corners."""
    corners = 1.5 * np.eye(len(shares))
    inputs = corners[random.choice(len(shares), count, p=shares)] + random.normal(size=(count, len(shares)))
    likelihood = np.exp(inputs @ corners.T)
    return likelihood / likelihood.sum(1, keepdims=True)


def test_shares_are_found_and_their_intervals_hold() -> None:
    shares, random = np.array([0.6, 0.3, 0.1]), np.random.default_rng(0)
    held, errors, counted = [], [], []
    for _ in range(40):
        probabilities = drawn(shares, 500, random)
        found, wide = class_shares([likely(row) for row in probabilities], [10_000] * 3)
        held.append(np.abs(found - shares) <= wide)
        errors.append(np.abs(found - shares).mean())
        counted.append(np.abs(np.bincount(probabilities.argmax(1), minlength=3) / 500 - shares).mean())
    assert 0.88 < np.mean(held) <= 1
    assert np.mean(errors) < 0.5 * np.mean(counted)


def test_shares_that_answers_say_nothing_of_have_wide_intervals() -> None:
    found, wide = class_shares([likely(np.full(2, 0.5))] * 50, [10, 10])
    assert found.tolist() == [0.5, 0.5] and (wide > 1).all()


def test_of_many_classes_the_likely_ones_are_kept() -> None:
    assert likely(np.array([0.00009, 0.7, 0.29991])) == ((1, 0.7), (2, 0.2999))
    assert len(likely(np.full(100, 0.01))) == 10
    assert likely(np.full(20_000, 5e-5)) == ((0, 1e-4),)  # never empty, never 0


@pytest.mark.parametrize(("classes", "count"), [(3, 200), (40, 100), (60, 20)])
def test_widths_are_those_of_the_curvature_among_all_classes(classes: int, count: int) -> None:
    rows = np.random.default_rng(0).dirichlet(np.full(classes, 0.2), count)
    shares, wide = class_shares([likely(row) for row in rows], [20] * classes)
    kept = np.zeros_like(rows)
    for at, row in enumerate(rows):
        places, values = zip(*likely(row), strict=True)
        kept[at, list(places)] = values
    slope = kept / (kept @ shares)[:, None]
    free = np.linalg.svd(np.ones((1, classes)))[2][1:].T
    covariance = free @ np.linalg.inv(free.T @ slope.T @ slope @ free + 1e-6 * np.eye(classes - 1)) @ free.T
    np.testing.assert_allclose(wide, NORMAL * np.sqrt(covariance.diagonal()), rtol=1e-6)
