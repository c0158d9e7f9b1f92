import math

import numpy as np
import pytest

from hydractl.errors import OptionError
from hydractl.metrics.conformal import conformal_threshold, nonconformity, prediction_sets

# One sample: classes of probability 0.5, 0.3, 0.2.
LOGITS = np.log([[[0.5, 0.3, 0.2]]])


@pytest.mark.parametrize(
    ("method", "label", "score"), [("lac", 0, 0.5), ("lac", 2, 0.8), ("aps", 0, 0.5), ("aps", 1, 0.8), ("aps", 2, 1.0)]
)
def test_scores_by_hand(method, label, score):
    scores = nonconformity(LOGITS, np.array([label]), method)

    assert scores == pytest.approx([score], abs=1e-15)


@pytest.mark.parametrize(
    ("method", "threshold", "size"),
    [
        *(("lac", *case) for case in ((0.4, 1), (0.5, 1), (0.7, 2), (0.8, 3))),
        *(("aps", *case) for case in ((0.1, 1), (0.5, 1), (0.79, 1), (0.8, 2), (1.0, 3))),
    ],
)
def test_sets_by_hand(method, threshold, size):
    logits = np.repeat(LOGITS, 3, axis=1)
    metrics = prediction_sets(logits, np.array([0, 1, 2]), threshold, method)

    assert (metrics.coverage, metrics.mean_size) == (pytest.approx(size / 3), size)


@pytest.mark.parametrize(
    ("count", "coverage", "rank"), [(9, 0.9, 9), (10, 0.9, 10), (19, 0.9, 18), (99, 0.95, 95), (4, 0.5, 3)]
)
def test_the_threshold_is_the_score_of_the_corrected_rank(count, coverage, rank):
    scores = np.linspace(0.01, 0.99, count)[::-1]

    assert conformal_threshold(scores, coverage) == np.sort(scores)[rank - 1]


def test_too_few_scores_promise_only_the_set_of_all_classes():
    threshold = conformal_threshold(np.full(8, 0.1), 0.9)

    assert threshold == 1
    for method in ("lac", "aps"):
        assert prediction_sets(LOGITS, np.array([2]), threshold, method).mean_size == 3


@pytest.mark.parametrize("method", ["lac", "aps"])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_new_samples_are_covered_as_promised(generator, method, coverage):
    labels = generator.integers(10, size=8000)
    logits = generator.normal(size=(2, 8000, 10))
    logits[:, np.arange(8000), labels] += 1.5
    threshold = conformal_threshold(nonconformity(logits[:, :4000], labels[:4000], method), coverage)
    metrics = prediction_sets(logits[:, 4000:], labels[4000:], threshold, method)

    # Four standard errors of two binomial shares of 4,000.
    assert metrics.coverage > coverage - 4 * math.sqrt(2 * coverage * (1 - coverage) / 4000)
    assert metrics.mean_size < 10


def test_a_coverage_is_a_share():
    for coverage in (0.0, 1.0, math.nan):
        with pytest.raises(OptionError, match="coverage"):
            conformal_threshold(np.array([0.5]), coverage)
