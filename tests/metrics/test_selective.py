from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from hydractl.metrics.selective import accuracy_at_coverage, aurc, error_metrics, risk_coverage

SAMPLES = st.lists(st.tuples(st.sampled_from([0.2, 0.4, 0.6, 0.8]), st.booleans()), min_size=1, max_size=6)


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


def test_errors_equal_scikit_learn(generator):
    confidence = generator.uniform(size=500).round(2)
    correct = generator.uniform(size=500) < confidence

    found = error_metrics(-confidence, correct)
    false_positive, true_positive, _ = roc_curve(~correct, -confidence, drop_intermediate=False)
    assert found.misclassification_auroc == pytest.approx(roc_auc_score(~correct, -confidence), abs=1e-12)
    assert found.misclassification_aupr == pytest.approx(average_precision_score(~correct, -confidence), abs=1e-12)
    assert found.misclassification_fpr95 == pytest.approx(false_positive[np.argmax(true_positive >= 0.95)], abs=1e-12)
