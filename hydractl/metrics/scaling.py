"""Fits on held-out ID data: a temperature of logits, and conformal sets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from hydractl.checkpoint.calibration import Calibration, Intervals
from hydractl.metrics.arrays import (
    FloatArray,
    IntArray,
    Logits,
    label_log_probabilities,
    mean_over_members,
    member_probabilities,
    sample_chunks,
    scaled_logits,
)

# From cosine similarities without their scale (T near 0.01) to saturated logits.
BOUNDS = (1e-3, 1e4)
FAR = (0.2, 5.0)  # temperatures beyond which something is said of them


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

    def calibration(self, before: Calibration) -> Calibration:
        """Returns a calibration with this fit in the place of an earlier one."""
        return replace(before, temperature=self.temperature, intervals=None)


@dataclass(frozen=True)
class FittedLabels(FittedTemperature):
    """A temperature by the binary NLL, the mean over labels, and each label's threshold."""

    thresholds: tuple[float, ...]  # [C]

    def calibration(self, before: Calibration) -> Calibration:
        return replace(super().calibration(before), thresholds=self.thresholds)


@dataclass(frozen=True)
class FittedIntervals(FittedTemperature):
    """Intervals, which change no answer, and the NLL with one deviation for all samples and with theirs."""

    intervals: Intervals

    def __str__(self) -> str:
        fit = self.intervals
        sides = (np.array(fit.width) * np.array(fit.floor)).tolist()
        return f"intervals for {100 * fit.share:g} %, {', '.join(f'{side:.3g}' for side in sides)} to each side or more"

    def calibration(self, before: Calibration) -> Calibration:
        return replace(super().calibration(before), intervals=self.intervals)


def far_from_one(temperature: float, exposed: Iterable[str] = ()) -> str | None:
    """Returns what a temperature below 0.2 or above 5 shows, a sentence; None for any other.

    Args:
        exposed: the names of the OOD sets that training saw.
    """
    if FAR[0] <= temperature <= FAR[1]:
        return None
    finding = f"the temperature {temperature:.3g} is far"
    if temperature > FAR[1]:
        return f"{finding} above 1: the model is far too confident on this data, or the labels are not its own"
    cause = ", ".join(exposed) or "outlier exposure, label smoothing, or with logits of a small scale"
    return f"{finding} below 1, as after {cause}: confidences may round to 1, their ranks do not"


def fit_temperature(member_logits: Logits, labels: IntArray) -> FittedTemperature:
    """Returns the one temperature on all members' logits whose mean probability has the lowest NLL; deterministic.

    Args:
        member_logits: [M,N,C].
        labels: [N] in 0..C-1.

    Source: Guo et al. 2017; on ensembles Rahaman & Thiery 2021 ("pool, then calibrate" with the pool inside).
    """

    temperature, before, nll, at_bound = lowest_temperature(lambda candidate: _nll(member_logits, labels, candidate))
    changed = 0.0 if temperature == 1 else _changed(member_logits, temperature)
    return FittedTemperature(temperature, before, nll, at_bound=at_bound, argmax_changed=changed)


def lowest_temperature(nll: Callable[[float], float]) -> tuple[float, float, float, bool]:
    """Returns the temperature with the lowest NLL, the NLL at 1 and there, and whether it still falls at the bound.

    Args:
        nll: of a temperature.
    """
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        return nll(float(np.exp(log_temperature)))

    # The NLL is unimodal for one member only, so a grid finds the valley and Brent's method its bottom.
    grid = np.linspace(np.log(BOUNDS[0]), np.log(BOUNDS[1]), num=15)
    losses = [loss(point) for point in grid]
    best = int(np.argmin(losses))
    valley = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    minimum = minimize_scalar(loss, bounds=valley, method="bounded", options={"xatol": 1e-7})
    before = loss(0.0)
    # The search never sees the ends of its range; and where the NLL is flat, no temperature is the best one.
    candidates = [(before, 0.0), (losses[best], float(grid[best])), (float(minimum.fun), float(minimum.x))]
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


def _changed(member_logits: Logits, temperature: float) -> float:
    """Returns the share of samples that get another class."""
    changed = 0
    for samples in sample_chunks(member_logits):
        each = [scaled_logits(member_logits, samples, divisor) for divisor in (1.0, temperature)]
        before, after = (mean_over_members(member_probabilities(logits)).argmax(axis=-1) for logits in each)
        changed += int((before != after).sum())
    return float(changed / member_logits.shape[1])


@dataclass(frozen=True)
class ClassSets:
    """Size and coverage of the prediction sets of the samples of one class."""

    samples: int
    coverage: float  # share of samples whose set holds the label
    mean_size: float  # classes


@dataclass(frozen=True)
class ConformalMetrics:
    """Size and coverage of prediction sets on evaluation data."""

    coverage: float  # share of samples whose set holds the label
    mean_size: float  # classes
    promised: float  # the share that should
    worst_class: float  # the lowest share of a class
    by_class: Mapping[str, ClassSets]


def least_samples(coverage: float) -> int:
    """Returns how many samples it takes to promise a coverage, above 0 and below 1.

    >>> least_samples(0.95), least_samples(0.99)
    (19, 99)
    """
    return ceil(round(coverage / (1 - coverage), 6))


def least_probability(right: FloatArray, coverage: float, samples: IntArray | None = None) -> float | None:
    """Returns the probability from which a class belongs to an answer; None where the samples are too few.

    The highest L with (N R(L) + 1) / (N + 1) <= 1 - coverage, where R(L) is the mean over N samples of the share of
    their right classes below L. It keeps the coverage on exchangeable samples, in the mean over calibration sets.

    Args:
        right: [t] probability of each right class of the calibration samples.
        coverage: above 0 and below 1.
        samples: [t] the number of its sample. Default: each sample has one.

    Source: conformal risk control, Angelopoulos et al. 2022; with one class a sample LAC, Sadinle et al. 2019.

    >>> least_probability(np.array([0.9, 0.2, 0.6, 0.4]), 0.5, np.array([0, 0, 1, 2]))
    0.4
    """
    weights = np.ones(right.size) if samples is None else 1 / np.bincount(samples)[samples]
    order = np.argsort(right)
    missed = np.cumsum(weights[order]) - weights[order]  # N R at the probability of each
    most = (1 - coverage) * (weights.sum() + 1) - 1 + 1e-6
    return float(right[order][missed <= most][-1]) if most >= 0 else None


def prediction_sets(
    p: FloatArray, labels: IntArray, least: Sequence[float], promised: float, classes: Sequence[str]
) -> ConformalMetrics:
    """Returns the size of the prediction sets, and how many of them hold the label.

    The predicted class is always in its set: an empty set would help nobody, and more classes cover no less.

    Args:
        p: [N,C] probabilities of test samples, not those of the calibration.
        labels: [N] in 0..C-1.
        least: the probability from which a class is in a set: one for all, or [C].
        promised: the coverage that it was found for.
        classes: [C] names.
    """
    chosen = (p >= np.asarray(least, p.dtype)) | (p == p.max(-1, keepdims=True))
    covered, sizes = chosen[np.arange(len(labels)), labels], chosen.sum(-1)
    counts = np.bincount(labels, minlength=len(classes))
    hits, widths = (np.bincount(labels, numbers, len(classes)) for numbers in (covered, sizes))
    by_class = {
        classes[at]: ClassSets(int(counts[at]), float(hits[at] / counts[at]), float(widths[at] / counts[at]))
        for at in np.flatnonzero(counts).tolist()
    }
    worst = min(sets.coverage for sets in by_class.values())
    return ConformalMetrics(float(covered.mean()), float(sizes.mean()), promised, worst_class=worst, by_class=by_class)
