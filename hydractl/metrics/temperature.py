"""One temperature for a network or an ensemble, fitted on held-out ID data."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from hydractl.metrics.checks import IntArray, Logits, check_labels, check_member_logits
from hydractl.metrics.probabilities import (
    label_log_probabilities,
    mean_over_members,
    member_probabilities,
    sample_chunks,
    scaled_logits,
)

# From cosine similarities without their scale (T near 0.01) to saturated logits.
BOUNDS = (1e-3, 1e4)


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
    argmax_changed: float  # share of the samples that are predicted another class: none by one member

    def __str__(self) -> str:
        return f"T = {self.temperature:.4f}"


def fit_temperature(member_logits: Logits, labels: NDArray[np.integer]) -> FittedTemperature:
    """The one temperature on all members' logits whose mean probability has the lowest NLL; deterministic.

    Args:
        member_logits: [M,N,C] float32 or float64, M >= 1.
        labels: [N] integers in 0..C-1.

    Raises:
        DataError: logits or labels of a wrong shape or type, empty, not finite, or outside the classes.

    Source: Guo et al. 2017; on ensembles Rahaman & Thiery 2021 ("pool, then calibrate" with the pool inside).
    """
    check_member_logits(member_logits)
    checked = check_labels(labels, member_logits.shape[1], member_logits.shape[2])

    def loss(log_temperature: float) -> float:
        return _nll(member_logits, checked, float(np.exp(log_temperature)))

    # The NLL is unimodal for one member only, so a grid finds the valley and Brent's method its bottom.
    grid = np.linspace(np.log(BOUNDS[0]), np.log(BOUNDS[1]), num=15)
    losses = [loss(point) for point in grid]
    best = int(np.argmin(losses))
    valley = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(loss, bounds=valley, method="bounded", options={"xatol": 1e-7})
    before = loss(0.0)
    # The search never sees the ends of its range; and where the NLL is flat, no temperature is the best one.
    candidates = [(before, 0.0), (losses[best], float(grid[best])), (float(found.fun), float(found.x))]
    nll, log_temperature = min(candidates, key=lambda candidate: candidate[0])
    at_bound = bool(np.isclose(log_temperature, np.log(BOUNDS), rtol=0, atol=1e-3).any())
    if at_bound and log_temperature < 0:
        return FittedTemperature(1.0, before, before, at_bound=True, argmax_changed=0.0)
    temperature = float(np.exp(log_temperature))
    return FittedTemperature(temperature, before, nll, at_bound, _changed(member_logits, temperature))


def _changed(member_logits: Logits, temperature: float) -> float:
    changed = 0
    for samples in sample_chunks(member_logits):
        before, after = (
            mean_over_members(member_probabilities(scaled_logits(member_logits, samples, value))).argmax(axis=-1)
            for value in (1.0, temperature)
        )
        changed += int((before != after).sum())
    return float(changed / member_logits.shape[1])


def _nll(member_logits: Logits, labels: IntArray, temperature: float) -> float:
    total = 0.0
    for samples in sample_chunks(member_logits):
        scaled = scaled_logits(member_logits, samples, temperature)
        total -= float(label_log_probabilities(scaled, labels[samples]).sum())
    return total / len(labels)
