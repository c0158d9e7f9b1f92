import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from hydractl.errors import DataError
from hydractl.metrics.arrays import mean_probabilities


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("members", [1, 3, 7])
def test_uniform_logits_give_exactly_one_over_c(members, classes):
    probabilities = mean_probabilities(np.full((members, 2, classes), -3.5, dtype=np.float32))
    assert (probabilities == 1 / classes).all()


SHAPES = npst.array_shapes(min_dims=3, max_dims=3, min_side=2, max_side=5)
NUMBERS = st.floats(-(2.0**100), 2.0**100, width=32)


@given(npst.arrays(np.float32, SHAPES, elements=NUMBERS), st.floats(1e-3, 1e4))
def test_any_finite_logits_give_a_distribution(logits, temperature):
    probabilities = mean_probabilities(logits, temperature)
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=0, atol=1e-12)


def test_a_logit_that_is_not_finite_is_named():
    logits = np.zeros((1, 3_000, 1_000), dtype=np.float32)
    logits[0, 2_999, 7] = np.nan
    with pytest.raises(DataError, match="sample 2999, class 7"):
        mean_probabilities(logits)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.zeros((2, 3), dtype=np.float32), r"shape \(2, 3\)"),
        (np.zeros((1, 2, 3), dtype=np.float16), "type float16"),
        (np.zeros((1, 2, 3), dtype=np.int64), "type int64"),
        (np.zeros((0, 2, 3), dtype=np.float32), "0 members"),
        (np.zeros((1, 0, 3), dtype=np.float32), "0 samples"),
        (np.zeros((1, 2, 1), dtype=np.float32), "1 class"),
    ],
)
def test_what_cannot_be_the_logits_of_an_ensemble_is_refused(logits, message):
    with pytest.raises(DataError, match=message):
        mean_probabilities(logits)
