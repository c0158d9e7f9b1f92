"""Vector scaling against scipy's own optimiser on the formula as Guo et al. write it, without our gradient."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import logsumexp

from hydractl.errors import DataError
from hydractl.metrics.temperature import fit_temperature
from hydractl.metrics.vector import _nll_and_gradient, fit_vector


def drawn(members: int, samples: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """Logits `[M,N,3]` that are too sure of the first class, and labels that they tell something of."""
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 3, samples)
    alike, own = generator.normal(size=(samples, 3)), generator.normal(size=(members, samples, 3))
    logits = 1.2 * np.eye(3)[labels] + alike + 0.3 * own
    return (logits * [3.0, 1.0, 0.5] + [1.0, 0.0, -0.5]).astype(np.float32), labels


def nll(point: np.ndarray, logits: np.ndarray, labels: np.ndarray) -> float:
    scaled = logits.astype(np.float64) * point[:3] + point[3:]
    log_p = scaled - logsumexp(scaled, axis=-1, keepdims=True)
    of_label = log_p[:, np.arange(len(labels)), labels]
    return float(-(logsumexp(of_label, axis=0) - np.log(len(logits))).mean())


@pytest.mark.parametrize("members", [1, 3])
def test_scipy_finds_nothing_better(members: int) -> None:
    logits, labels = drawn(members)
    found = fit_vector(logits, labels)
    plain, point = np.r_[np.ones(3), np.zeros(3)], np.r_[found.scale, found.shift]
    assert found.nll_before == pytest.approx(nll(plain, logits, labels), abs=1e-12)
    assert found.nll_after == pytest.approx(nll(point, logits, labels), abs=1e-12)
    assert found.nll_after < fit_temperature(logits, labels).nll_after < found.nll_before
    # One member's loss has one valley, wherever the way down begins; that of several has more than one.
    start = plain if members == 1 else point
    other = minimize(nll, start, args=(logits, labels), method="BFGS", options={"gtol": 1e-7})
    assert found.nll_after == pytest.approx(other.fun, abs=1e-8)
    assert found.scale == pytest.approx(other.x[:3], abs=1e-3)
    assert found.shift == pytest.approx(other.x[3:] - other.x[3:].mean(), abs=1e-3)
    assert (found.at_bound, found.argmax_changed > 0) == (False, True)
    before, after = (
        np.exp(z - logsumexp(z, axis=-1, keepdims=True)).mean(0).argmax(-1)
        for z in (logits.astype(np.float64), logits.astype(np.float64) * found.scale + found.shift)
    )
    assert found.argmax_changed == (before != after).mean()


def test_the_gradient_is_that_of_the_loss() -> None:
    logits, labels = drawn(2)
    point = np.array([0.5, 1.5, 0.9, 0.3, -0.2, 0.1])
    value, gradient = _nll_and_gradient(logits, labels, point)
    assert value == pytest.approx(nll(point, logits, labels), abs=1e-12)
    assert gradient == pytest.approx(approx_fprime(point, nll, 1e-7, logits, labels), abs=1e-6)


def test_data_that_cannot_tell_change_nothing() -> None:
    logits = np.eye(3, dtype=np.float32)[None].repeat(2, axis=0)
    found = fit_vector(logits, np.arange(3))
    assert (found.scale, found.shift, found.at_bound) == ((1.0, 1.0, 1.0), (0.0, 0.0, 0.0), True)
    assert found.nll_after == found.nll_before
    with pytest.raises(DataError, match="1 of 3 classes have no sample"):
        fit_vector(logits[:, :2], np.arange(2))
