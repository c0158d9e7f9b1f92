from itertools import product
from math import log

import numpy as np
import pytest

from hydractl.monitoring.evidence import EDGES, EVERY, MOST, SHARES, Evidence, Scale


def h(start: int) -> float:
    return 1 / (1 + log(start))


def test_steps_and_gaps_of_scores_that_are_stored_whole_and_thinned() -> None:
    assert Scale(9, 9).steps.tolist() == [1, 1, 1, 1, 1, 2] == Scale(9, 9).cells.tolist()
    thinned = Scale(4999, 999)  # each step stands for five samples
    assert thinned.steps.tolist() == [2, 10, 20, 50, 100, 250]
    assert thinned.cells.tolist() == [10, 50, 100, 250, 500, 1250]
    low = Scale(9, 9).low(np.array([0.1, 0.2, 0.3], dtype=np.float32))
    assert low.tolist() == [[True] * 6, [False] * 5 + [True], [False] * 6]


def test_two_inputs_by_hand() -> None:
    scale = Scale(9, 9)
    evidence = Evidence(scale)
    assert evidence.value == 1
    evidence.add(scale.low(np.array(0.1)))  # up to every edge: probabilities 1 / 10, and 2 / 10 for the last
    first = h(1) - h(2)
    odd = np.array(SHARES)
    capital = np.array([first * (1 - odd + odd / 0.1)] * 5 + [first * (1 - odd + odd / 0.2)])
    np.testing.assert_allclose(evidence.capital, capital, rtol=1e-14)
    assert evidence.value == pytest.approx(capital.mean() + h(2), rel=1e-14)
    evidence.add(scale.low(np.array(0.2)))  # up to the last only: now (2 + 1) / (10 + 1)
    capital[:5] *= 1 - odd
    capital[5] *= 1 - odd + odd / (3 / 11)
    np.testing.assert_allclose(evidence.capital, capital, rtol=1e-14)


def test_its_mean_over_calibration_sets_and_streams_is_one_at_any_time() -> None:
    scale, length = Scale(3, 3), 7  # every edge is the first of four gaps
    mean = 0.0
    for path in product([True, False], repeat=length):
        evidence, probability = Evidence(scale), 1.0
        for seen, low in enumerate(path):
            chance = (1 + sum(path[:seen])) / (4 + seen)
            probability *= chance if low else 1 - chance
            evidence.add(np.full(len(EDGES), low))
        mean += probability * float(evidence.value)
    assert mean == pytest.approx(1, rel=1e-12)


def test_starts_have_weights_that_sum_to_one() -> None:
    scale = Scale(299, 299)
    evidence = Evidence(scale)
    for _ in range(2 * EVERY + 1):
        before = evidence.capital
        evidence.add(scale.low(np.array(1.0)))
    # Where nothing is won, what is left is what the starts were given.
    assert evidence.value == pytest.approx(float(evidence.capital.mean()) + h(4), rel=1e-14)
    np.testing.assert_allclose(evidence.capital, (before + h(3) - h(4)) * (1 - np.array(SHARES)), rtol=1e-12)


def test_evidence_ends_when_inputs_are_typical_again() -> None:
    scale = Scale(999, 999)
    evidence = Evidence(scale)
    for _ in range(1000):
        evidence.add(scale.low(np.array(0.001)))
    assert 20 < evidence.value < 1.01 * MOST
    for _ in range(3000):
        evidence.add(scale.low(np.array(0.5)))
    assert evidence.value < 20


@pytest.mark.slow
@pytest.mark.parametrize("samples", [300, 5000])
def test_false_alarms_are_as_rare_as_promised(samples: int) -> None:
    runs, alpha, random = 400, 0.2, np.random.default_rng(samples)
    scale = Scale(samples, samples)
    levels = np.sort(random.random((runs, samples)), axis=1)[:, scale.steps - 1]
    parts = (runs, len(EDGES))
    evidence = Evidence(scale, low=np.zeros(parts), capital=np.zeros((*parts, len(SHARES))))
    highest = np.zeros(runs)
    for _ in range(10_000):
        evidence.add(random.random((runs, 1)) < levels)
        highest = np.maximum(highest, evidence.value)
    alarms = (highest >= 1 / alpha).mean()
    assert 0.01 < alarms < alpha  # rarely never: the bound is not idle
