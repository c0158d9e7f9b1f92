import math
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from hydractl.errors import DataError, OptionError
from hydractl.uncertainty.selective import misclassification_auroc, risk_coverage, selective_metrics
from hydractl.uncertainty.table import tabulate

SAMPLES = st.lists(st.tuples(st.sampled_from([0.2, 0.4, 0.6, 0.8]), st.booleans()), min_size=1, max_size=6)


def table_of(confidence, correct):
    """Two-class predictions of class 0 with the given confidence."""
    logits = [[math.log(p), math.log(1 - p)] for p in confidence]
    return tabulate(np.array([logits]), np.where(correct, 0, 1))


def test_by_hand():
    curve = risk_coverage(np.array([0.6, 0.9, 0.8, 0.7]), np.array([True, True, False, True]))

    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert curve.risk == pytest.approx([0, 1 / 2, 1 / 3, 1 / 4], abs=1e-15)


def test_metrics_by_hand():
    table = table_of([0.6, 0.9, 0.8, 0.7], [True, True, False, True])
    metrics = selective_metrics(table, (0.25, 0.5, 0.51, 1.0))

    assert metrics.aurc == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 4, abs=1e-15)
    assert metrics.accuracy_at_coverage == (
        (0.25, 1),
        (0.5, 0.5),
        (0.51, pytest.approx(2 / 3)),
        (1.0, 0.75),
    )
    # The error, at 0.8, is less confident than one of the three right ones.
    assert metrics.misclassification_auroc == pytest.approx(1 / 3, abs=1e-15)


def test_a_share_that_is_not_exact_answers_no_sample_too_many():
    # 0.07 * 100 is 7.000000000000001: the eighth sample is the only error.
    confidence = np.linspace(0.99, 0.51, 100)
    metrics = selective_metrics(table_of(confidence, np.arange(100) != 7), (0.07, 0.08))

    assert metrics.accuracy_at_coverage == ((0.07, 1), (0.08, 7 / 8))


@given(SAMPLES)
def test_ties_enter_in_the_mean_over_all_their_orders(samples):
    risks = []
    for order in permutations(samples):
        if all(first[0] >= second[0] for first, second in pairwise(order)):
            errors = np.cumsum([not correct for _, correct in order])
            risks.append(errors / np.arange(1, len(order) + 1))
    curve = risk_coverage(np.array([s[0] for s in samples]), np.array([s[1] for s in samples]))

    np.testing.assert_allclose(curve.risk, np.mean(risks, axis=0), rtol=0, atol=1e-12)


def test_misclassification_auroc_equals_scikit_learn(generator):
    confidence = generator.uniform(size=500).round(2)
    correct = generator.uniform(size=500) < confidence

    theirs = roc_auc_score(~correct, -confidence)
    assert misclassification_auroc(confidence, correct) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(("correct", "risk"), [(True, 0.0), (False, 1.0)])
def test_without_errors_or_without_right_ones_there_is_no_auroc(correct, risk):
    metrics = selective_metrics(table_of([0.6, 0.7], [correct, correct]))

    assert metrics.misclassification_auroc is None
    assert metrics.aurc == risk


def test_one_sample():
    assert selective_metrics(table_of([0.6], [False])).aurc == 1


def test_what_makes_no_sense_is_refused():
    with pytest.raises(DataError, match="need labels"):
        selective_metrics(tabulate(np.zeros((1, 2, 3))))
    with pytest.raises(DataError, match="at least one"):
        risk_coverage(np.array([]), np.array([], dtype=bool))
    for coverage in (0.0, 1.1, math.nan):
        with pytest.raises(OptionError, match="coverage"):
            selective_metrics(table_of([0.6], [True]), (coverage,))
