"""Split conformal prediction: sets of classes that hold the right one with a chosen probability."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from hydractl.metrics.checks import FloatArray, IntArray


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
    promised: float | None = None  # the share that should; None in early reports
    worst_class: float | None = None  # the lowest share of a class; None likewise
    by_class: Mapping[str, ClassSets] = field(default_factory=dict)


def least_samples(coverage: float) -> int:
    """Returns how many samples it takes to promise a coverage, above 0 and below 1.

    >>> least_samples(0.95), least_samples(0.99)
    (19, 99)
    """
    return ceil(round(coverage / (1 - coverage), 6))


def least_probability(right: FloatArray, coverage: float) -> float | None:
    """Returns the probability from which a class belongs to a set; None where the samples are too few.

    The ceil((N + 1) coverage)-th highest probability of a right class, which guarantees the coverage on exchangeable
    samples, in the mean over calibration sets.

    Args:
        right: [N] probability of the label of each calibration sample.
        coverage: above 0 and below 1.

    Source: LAC, Sadinle et al. 2019.
    """
    rank = ceil(round((right.size + 1) * coverage, 6))
    return float(np.sort(right)[right.size - rank]) if rank <= right.size else None


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
