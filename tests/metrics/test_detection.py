import math
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics import roc_curve as their_roc_curve

from hydractl.errors import DataError
from hydractl.metrics.detection import accuracy_at_coverage, aurc, ood_metrics, risk_coverage, roc_curve

# Few values, so that ties abound; and any, so that close scores are told apart.
SCORES = st.lists(st.integers(-3, 3).map(float) | st.floats(-1e3, 1e3), min_size=1, max_size=40)
SAMPLES = st.lists(st.tuples(st.sampled_from([0.2, 0.4, 0.6, 0.8]), st.booleans()), min_size=1, max_size=6)


def test_by_hand_with_a_tie():
    metrics = ood_metrics(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0]))
    # Pairs in order: 4 above 1, 2, 3; 2 above 1, ties 2, below 3.
    assert metrics.auroc == pytest.approx(4.5 / 6, abs=1e-15)
    # Thresholds 4 (1 of 1) and 2 (2 of 4).
    assert metrics.aupr_out == pytest.approx(0.5 * 1 + 0.5 * 2 / 4, abs=1e-15)
    # ID found from the low end: 1 (1 of 1), 2 (2 of 3), 3 (3 of 4).
    assert metrics.aupr_in == pytest.approx((1 + 2 / 3 + 3 / 4) / 3, abs=1e-15)
    # All OOD are kept at 2, where ID 2 and 3 are flagged.
    assert metrics.fpr95 == pytest.approx(2 / 3, abs=1e-15)
    assert metrics.ood_share == pytest.approx(2 / 5, abs=1e-15)


@pytest.mark.parametrize(("count", "kept"), [(20, 19), (40, 38), (100, 95), (180, 171), (21, 20), (19, 19)])
def test_fpr95_keeps_at_least_95_percent_and_no_more_than_needed(count, kept):
    ood_scores = np.arange(count, dtype=float)
    threshold = ood_scores[count - kept]
    id_scores = np.array([threshold, np.nextafter(threshold, -1)])
    assert ood_metrics(id_scores, ood_scores).fpr95 == 0.5


@given(SCORES, SCORES)
def test_equals_scikit_learn(id_scores, ood_scores):
    ours = ood_metrics(np.array(id_scores), np.array(ood_scores))
    is_ood, scores = np.repeat([0, 1], [len(id_scores), len(ood_scores)]), np.concatenate([id_scores, ood_scores])
    false_positive, true_positive, _ = their_roc_curve(is_ood, scores, drop_intermediate=False)
    assert ours.auroc == pytest.approx(roc_auc_score(is_ood, scores), abs=1e-12)
    assert ours.aupr_out == pytest.approx(average_precision_score(is_ood, scores), abs=1e-12)
    assert ours.aupr_in == pytest.approx(average_precision_score(1 - is_ood, -scores), abs=1e-12)
    assert ours.fpr95 == pytest.approx(false_positive[np.argmax(true_positive >= 0.95)], abs=1e-12)


@given(SCORES, SCORES)
def test_the_area_under_the_roc_curve_is_the_auroc(id_scores, ood_scores):
    curve = roc_curve(np.array(id_scores), np.array(ood_scores))
    area = np.trapezoid(curve.true_positive_rate, curve.false_positive_rate)
    assert curve.false_positive_rate[0] == curve.true_positive_rate[0] == 0
    assert curve.false_positive_rate[-1] == curve.true_positive_rate[-1] == 1
    assert area == pytest.approx(ood_metrics(np.array(id_scores), np.array(ood_scores)).auroc, abs=1e-12)


@pytest.mark.parametrize("bad", [[0.0, math.nan], [0.0, math.inf], [0.0, -math.inf], []])
def test_empty_sets_and_scores_that_are_not_finite_are_refused(bad):
    with pytest.raises(DataError, match=r"ID score( of sample 1 is|$|)"):
        roc_curve(np.array(bad), np.array([0.0]))
    with pytest.raises(DataError, match="OOD score"):
        ood_metrics(np.array([0.0]), np.array(bad))


def test_by_hand():
    confidence, correct = np.array([0.6, 0.9, 0.8, 0.7]), np.array([True, True, False, True])
    curve = risk_coverage(confidence, correct)
    shares = accuracy_at_coverage(confidence, correct, (0.25, 0.5, 0.51, 1.0))
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert curve.risk == pytest.approx([0, 1 / 2, 1 / 3, 1 / 4], abs=1e-15)
    assert aurc(confidence, correct) == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 4, abs=1e-15)
    assert shares == {0.25: 1, 0.5: 0.5, 0.51: pytest.approx(2 / 3), 1.0: 0.75}


def test_a_share_that_is_not_exact_answers_no_sample_too_many():
    # 0.07 * 100 is 7.000000000000001: the eighth sample is the only error.
    confidence = np.linspace(0.99, 0.51, 100)
    assert accuracy_at_coverage(confidence, np.arange(100) != 7, (0.07, 0.08)) == {0.07: 1, 0.08: 7 / 8}


@given(SAMPLES)
def test_ties_enter_in_the_mean_over_all_their_orders(samples):
    risks = []
    for order in permutations(samples):
        if all(first[0] >= second[0] for first, second in pairwise(order)):
            errors = np.cumsum([not correct for _, correct in order])
            risks.append(errors / np.arange(1, len(order) + 1))
    curve = risk_coverage(np.array([s[0] for s in samples]), np.array([s[1] for s in samples]))
    np.testing.assert_allclose(curve.risk, np.mean(risks, axis=0), rtol=0, atol=1e-12)
