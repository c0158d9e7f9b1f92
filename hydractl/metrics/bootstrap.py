"""Certainty about the numbers: seeded percentile bootstrap over samples, paired across systems by seed.

Resampling leaves the order of the scores as it is, so samples are sorted once: each resample only counts how often each
score was drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hydractl.metrics.arrays import FloatArray, IntArray
from hydractl.metrics.classification import (
    BINS,
    ClassificationMetrics,
    PredictionTable,
    binned_gap,
    equal_mass_bins,
    equal_width_bins,
)
from hydractl.metrics.detection import OodMetrics, metrics_of_counts, rank_scores

LEVEL = 0.95  # share of the resampled values inside an interval
POWER = 0.8  # the probability that the samples show a true gain of the size found

Outcome = Literal["better", "worse", "within chance"]


def draw_places(sizes: Sequence[int], replicates: int = 1000, seed: int = 0) -> Iterator[list[IntArray]]:
    """Yields for each resample the places of the samples drawn with replacement, `[N]` of each data set of N samples.

    Equal sizes and seed draw equal samples, so replicates of two systems on the same data are paired.
    """
    generator = np.random.default_rng(seed)
    for _ in range(replicates):
        yield [generator.integers(size, size=size) for size in sizes]


def percentile_interval(values: FloatArray) -> tuple[float, float]:
    """Returns the bounds of the middle 95 % of resampled values [draws]."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def outcome(value: float, interval: tuple[float, float], higher_is_better: bool, compared: int) -> Outcome:
    """Classifies a difference, Bonferroni-corrected for how many numbers are compared.

    The correction widens the interval as that of a normal distribution. A gain must also be so large that the samples
    show one of its size with the probability POWER, since what barely shows is overestimated.

    >>> [outcome(value, (value - 1, value + 1), True, 1) for value in (1.5, 1.3, -1.1)]
    ['better', 'within chance', 'worse']
    """
    normal, (low, high) = NormalDist(), interval
    sign = 1 if higher_is_better else -1
    to_loss, to_gain = (value - low, high - value) if higher_is_better else (high - value, value - low)
    alone, corrected = (normal.inv_cdf(1 - (1 - LEVEL) / 2 / numbers) for numbers in (1, compared))
    if sign * value > to_loss * (corrected + normal.inv_cdf(POWER)) / alone:
        return "better"
    return "worse" if -sign * value > to_gain * corrected / alone else "within chance"


def classification_replicates(table: PredictionTable, replicates: int = 1000, seed: int = 0) -> dict[str, FloatArray]:
    """Returns resampled values [draws] of every field of ClassificationMetrics."""
    outcomes, samples = table.required_outcomes(), table.msp.size
    gaps, bin_of = outcomes.correct - table.msp, equal_width_bins(table.msp, BINS)
    distinct, ranks = np.unique(table.msp, return_inverse=True)

    def of(places: IntArray) -> ClassificationMetrics:
        gap, rank = gaps[places], ranks[places]
        counts = np.bincount(rank, minlength=distinct.size)
        gap_sums = np.asarray(np.bincount(rank, weights=gap, minlength=distinct.size), dtype=np.float64)
        return ClassificationMetrics(
            accuracy=outcomes.correct[places].mean(),
            brier=outcomes.brier[places].mean(),
            nll=outcomes.nll[places].mean(),
            ece=binned_gap(bin_of[places], gap, samples),
            adaptive_ece=binned_gap(equal_mass_bins(counts, BINS), gap_sums, samples),
        )

    return by_field(ClassificationMetrics, [of(places) for [places] in draw_places([samples], replicates, seed)])


def accuracy_replicates(correct: NDArray[np.bool_], replicates: int = 1000, seed: int = 0) -> dict[str, FloatArray]:
    """Returns resampled values [draws] of the accuracy alone, drawn as `classification_replicates` draws.

    Args:
        correct: [N] booleans.
    """
    return {
        "accuracy": np.array([correct[places].mean() for [places] in draw_places([correct.size], replicates, seed)])
    }


def sets_replicates(
    id_scores: NDArray[np.floating],
    ood_scores: Mapping[str, NDArray[np.floating]],
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, FloatArray]]:
    """Returns resampled values [draws] of every field of OodMetrics for each OOD set.

    ID and OOD samples are resampled apart; one draw of the ID samples serves all sets, so means over sets are right.

    Args:
        id_scores: [N] higher = more OOD.
        ood_scores: [N'] of each set likewise, at least one set.
    """
    ranked = {name: rank_scores(id_scores, scores) for name, scores in ood_scores.items()}
    drawn: dict[str, list[OodMetrics]] = {name: [] for name in ood_scores}
    sizes = [len(id_scores), *map(len, ood_scores.values())]
    for id_places, *ood_places in draw_places(sizes, replicates, seed):
        for (name, (levels, id_ranks, ood_ranks)), places in zip(ranked.items(), ood_places, strict=True):
            id_counts = np.bincount(id_ranks[id_places], minlength=levels)
            drawn[name].append(metrics_of_counts(id_counts, np.bincount(ood_ranks[places], minlength=levels)))
    return {name: by_field(OodMetrics, values) for name, values in drawn.items()}


def by_field(metrics: type[Any], values: Sequence[Any]) -> dict[str, FloatArray]:
    """Returns the values [draws] of each field of a class of metrics."""
    columns = np.array([astuple(value) for value in values]).T
    return dict(zip((field.name for field in fields(metrics)), columns, strict=True))
