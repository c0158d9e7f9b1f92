"""Scaling of logits that is fitted on held-out ID data: one temperature, or a scale and a shift for each class."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from hydractl.errors import DataError
from hydractl.metrics.checks import FloatArray, IntArray, Logits
from hydractl.metrics.probabilities import (
    label_log_probabilities,
    mean_over_members,
    member_probabilities,
    sample_chunks,
    scaled_logits,
)

# From cosine similarities without their scale (T near 0.01) to saturated logits.
BOUNDS = (1e-3, 1e4)
# How far a scale may be from what the temperature makes of it, as a factor, and a shift from none, in nats: where a
# class is told from all others without an error, the likelihood grows for ever.
LARGEST_FACTOR, LARGEST_SHIFT = 100.0, 100.0


@dataclass(frozen=True)
class FittedTemperature:
    """The temperature that minimises the NLL of the mean member probability, and what it changed.

    Where every sample is predicted right, any smaller one fits better: it then stays 1, as a tiny one would make all
    confidences 1 and with that undo the detection of OOD samples.
    """

    temperature: float
    nll_before: float  # nats, at temperature 1
    nll_after: float
    at_bound: bool  # the NLL still falls at the end of the range: separable, or useless, calibration data
    argmax_changed: float  # share of predictions that change; 0 for one member

    def __str__(self) -> str:
        return f"T = {self.temperature:.4f}"


def fit_temperature(member_logits: Logits, labels: IntArray) -> FittedTemperature:
    """Returns the one temperature on all members' logits whose mean probability has the lowest NLL; deterministic.

    Args:
        member_logits: [M,N,C].
        labels: [N] in 0..C-1.

    Source: Guo et al. 2017; on ensembles Rahaman & Thiery 2021 ("pool, then calibrate" with the pool inside).
    """

    temperature, before, nll, at_bound = lowest_temperature(lambda one: _nll(member_logits, labels, one))
    changed = 0.0 if temperature == 1 else _changed(member_logits, temperature)
    return FittedTemperature(temperature, before, nll, at_bound=at_bound, argmax_changed=changed)


def lowest_temperature(nll: Callable[[float], float]) -> tuple[float, float, float, bool]:
    """Returns the temperature with the lowest NLL, the NLL at 1 and there, and whether it still falls at the bound.

    Args:
        nll: of a temperature.
    """

    def loss(log_temperature: float) -> float:
        return nll(float(np.exp(log_temperature)))

    # The NLL is unimodal for one member only, so a grid finds the valley and Brent's method its bottom.
    grid = np.linspace(np.log(BOUNDS[0]), np.log(BOUNDS[1]), num=15)
    losses = [loss(point) for point in grid]
    best = int(np.argmin(losses))
    valley = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(loss, bounds=valley, method="bounded", options={"xatol": 1e-7})
    before = loss(0.0)
    # The search never sees the ends of its range; and where the NLL is flat, no temperature is the best one.
    candidates = [(before, 0.0), (losses[best], float(grid[best])), (float(found.fun), float(found.x))]
    lowest, log_temperature = min(candidates, key=lambda candidate: candidate[0])
    at_bound = bool(np.isclose(log_temperature, np.log(BOUNDS), rtol=0, atol=1e-3).any())
    if at_bound and log_temperature < 0:
        return 1.0, before, before, True
    return float(np.exp(log_temperature)), before, lowest, at_bound


def _nll(member_logits: Logits, labels: IntArray, temperature: float) -> float:
    total = 0.0
    for samples in sample_chunks(member_logits):
        scaled = scaled_logits(member_logits, samples, temperature)
        total -= float(label_log_probabilities(scaled, labels[samples]).sum())
    return total / len(labels)


@dataclass(frozen=True)
class FittedVector:
    """The scale and the shift of each class that minimise the NLL of the mean member probability, and the change.

    Where every sample is predicted right they stay 1 and 0, as a temperature stays 1.
    """

    scale: tuple[float, ...]  # [C]
    shift: tuple[float, ...]  # [C], nats; only their differences count, and their mean is 0
    nll_before: float  # nats, with neither
    nll_after: float
    at_bound: bool  # the NLL still falls at the end of the range
    argmax_changed: float  # share of the samples that are predicted another class

    @property
    def temperature(self) -> float:
        """Always 1: the scales already contain the temperature."""
        return 1.0

    def apply(self, member_logits: Logits) -> Logits:
        """Returns logits `[M,N,C]`, scaled and shifted."""
        return member_logits * np.asarray(self.scale, member_logits.dtype) + np.asarray(self.shift, member_logits.dtype)

    def __str__(self) -> str:
        return (
            f"scales {min(self.scale):.4f} to {max(self.scale):.4f}, "
            f"shifts {min(self.shift):.4f} to {max(self.shift):.4f}"
        )


def fit_vector(member_logits: Logits, labels: IntArray) -> FittedVector:
    """Returns the scale and shift of each class, the same for all members, whose mean probability has the lowest NLL.

    It starts from the fitted temperature, so that it is never worse on these samples; deterministic.

    Args:
        member_logits: [M,N,C].
        labels: [N] in 0..C-1, each class at least once.

    Raises:
        DataError: a class has no samples.

    Source: Guo et al. 2017, vector scaling: softmax(w * z + b).
    """
    classes = member_logits.shape[2]
    if absent := classes - len(np.unique(labels)):
        raise DataError(
            f"{absent} of {classes} classes have no sample, so nothing tells their scale: give more data, or choose "
            "`method` temperature"
        )
    start = fit_temperature(member_logits, labels)
    before = start.nll_before
    if start.at_bound and start.temperature == 1:
        return FittedVector((1.0,) * classes, (0.0,) * classes, before, before, at_bound=True, argmax_changed=0.0)
    first = np.r_[np.full(classes, 1 / start.temperature), np.zeros(classes)]
    low = np.r_[first[:classes] / LARGEST_FACTOR, np.full(classes, -LARGEST_SHIFT)]
    high = np.r_[first[:classes] * LARGEST_FACTOR, np.full(classes, LARGEST_SHIFT)]
    found = minimize(
        lambda point: _nll_and_gradient(member_logits, labels, point),
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=np.c_[low, high],
        options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-7},
    )
    scale, shift = np.split(found.x, 2)
    at_bound = bool((np.isclose(found.x, low) | np.isclose(found.x, high)).any())
    shift = shift - shift.mean()
    changed = _changed(member_logits, 1.0, scale, shift)
    return FittedVector(
        tuple(scale.tolist()),
        tuple(shift.tolist()),
        before,
        nll_after=float(found.fun),
        at_bound=at_bound,
        argmax_changed=changed,
    )


def _nll_and_gradient(member_logits: Logits, labels: IntArray, point: FloatArray) -> tuple[float, FloatArray]:
    """Returns the mean NLL at the scales and shifts `[2C]`, and its gradient."""
    scale, shift = np.split(point, 2)
    total, gradient = 0.0, np.zeros((2, len(scale)))
    for samples in sample_chunks(member_logits):
        logits, own = scaled_logits(member_logits, samples, 1.0), labels[samples]
        changed = logits * scale + shift
        total -= float(label_log_probabilities(changed, own).sum())
        p = member_probabilities(changed)  # [M,n,C]
        places = np.arange(len(own))
        # A member answers for a sample by its share of the mean probability of the label.
        of_label = np.maximum(p[:, places, own], np.finfo(np.float64).tiny)
        share = of_label / of_label.sum(axis=0)
        slope = p * share[:, :, None]
        slope[:, places, own] -= share
        gradient += [(slope * logits).sum(axis=(0, 1)), slope.sum(axis=(0, 1))]
    return total / len(labels), gradient.ravel() / len(labels)


def _changed(
    member_logits: Logits, temperature: float, scale: FloatArray | float = 1.0, shift: FloatArray | float = 0.0
) -> float:
    """Returns the share of samples that get another class."""
    changed = 0
    for samples in sample_chunks(member_logits):
        before = scaled_logits(member_logits, samples, 1.0)
        after = scaled_logits(member_logits, samples, temperature) * scale + shift
        classes = [mean_over_members(member_probabilities(one)).argmax(axis=-1) for one in (before, after)]
        changed += int((classes[0] != classes[1]).sum())
    return float(changed / member_logits.shape[1])
