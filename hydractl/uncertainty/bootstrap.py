"""Certainty about the numbers: seeded percentile bootstrap over samples, paired across systems by seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from hydractl.errors import DataError, OptionError
from hydractl.uncertainty.calibration import (
    ClassificationMetrics,
    binned_gap,
    equal_mass_bins,
    equal_width_bins,
)
from hydractl.uncertainty.checks import FloatArray, IntArray
from hydractl.uncertainty.ood_detection import OodMetrics, count_scores, metrics_from_counts
from hydractl.uncertainty.table import PredictionTable


@dataclass(frozen=True)
class Interval:
    """The range that holds the middle of the resampled values."""

    low: float
    high: float


def bootstrap(
    statistic: Callable[..., Sequence[float]], sizes: Sequence[int], replicates: int = 1000, seed: int = 0
) -> FloatArray:
    """The values of a statistic on resampled data, [draws,numbers]; one resample is held at a time.

    Equal sizes and seed draw equal samples, so replicates of two systems on the same data are paired.

    Args:
        statistic: from one array of sample positions per data set to a few numbers.
        sizes: the number of samples of each data set, drawn with replacement.
        replicates: how many draws.
        seed: of the draws.

    Raises:
        DataError: an empty data set.
        OptionError: no replicates.
    """
    if min(sizes) < 1:
        raise DataError("a data set without samples cannot be resampled")
    if replicates < 1:
        raise OptionError(f"{replicates} bootstrap replicates: expected at least one")
    generator = np.random.default_rng(seed)
    return np.array(
        [statistic(*(generator.integers(size, size=size) for size in sizes)) for _ in range(replicates)],
        dtype=np.float64,
    )


def percentile_interval(values: FloatArray, level: float = 0.95) -> Interval:
    """The percentile interval of resampled values.

    Args:
        values: [draws].
        level: share of the values inside, in (0,1).

    Raises:
        OptionError: a level outside (0,1).
    """
    if not 0 < level < 1:
        raise OptionError(f"interval level {level}: expected above 0 and below 1")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def classification_replicates(
    table: PredictionTable, replicates: int = 1000, seed: int = 0, bins: int = 15
) -> dict[str, FloatArray]:
    """Resampled values [draws] of every field of ClassificationMetrics.

    Args:
        table: predictions of N samples with labels.
        replicates: how many draws.
        seed: of the draws.
        bins: of confidence, for both calibration errors.

    Raises:
        DataError: the samples have no labels.
        OptionError: no replicates or no bins.
    """
    outcomes = table.labelled()
    gaps = outcomes.correct - table.msp
    fixed_bins = equal_width_bins(table.msp, bins)
    distinct, ranks = np.unique(table.msp, return_inverse=True)

    def resampled(positions: IntArray) -> Sequence[float]:
        drawn, drawn_gaps = ranks[positions], gaps[positions]
        counts = np.bincount(drawn, minlength=distinct.size)
        mass_bins = equal_mass_bins(counts, bins)[drawn]
        metrics = ClassificationMetrics(
            accuracy=float(outcomes.correct[positions].mean()),
            brier=float(outcomes.brier[positions].mean()),
            nll=float(outcomes.nll[positions].mean()),
            ece=binned_gap(fixed_bins[positions], drawn_gaps, positions.size),
            adaptive_ece=binned_gap(mass_bins, drawn_gaps, positions.size),
        )
        return astuple(metrics)

    values = bootstrap(resampled, [table.msp.size], replicates, seed)
    return _by_field(ClassificationMetrics, values)


def ood_replicates(
    id_scores: NDArray[np.floating],
    ood_scores: NDArray[np.floating],
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, FloatArray]:
    """Resampled values [draws] of every field of OodMetrics; ID and OOD are resampled apart.

    Args:
        id_scores: [N] higher = more OOD.
        ood_scores: [N'] likewise.
        replicates: how many draws.
        seed: of the draws.

    Raises:
        DataError: a set is empty or a score is not finite.
        OptionError: no replicates.
    """
    distinct, _, _ = count_scores(id_scores, ood_scores)
    id_ranks = np.searchsorted(distinct, id_scores)
    ood_ranks = np.searchsorted(distinct, ood_scores)

    def resampled(id_positions: IntArray, ood_positions: IntArray) -> Sequence[float]:
        id_counts = np.bincount(id_ranks[id_positions], minlength=distinct.size)
        ood_counts = np.bincount(ood_ranks[ood_positions], minlength=distinct.size)
        return astuple(metrics_from_counts(id_counts, ood_counts))

    values = bootstrap(resampled, [id_ranks.size, ood_ranks.size], replicates, seed)
    return _by_field(OodMetrics, values)


def sets_replicates(
    id_scores: NDArray[np.floating],
    ood_scores: Mapping[str, NDArray[np.floating]],
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, FloatArray]]:
    """As `ood_replicates` for several OOD sets; one draw of the ID samples serves all, so means over sets are right.

    Args:
        id_scores: [N] higher = more OOD.
        ood_scores: [N'] of each set likewise, at least one set.
        replicates: how many draws.
        seed: of the draws.

    Raises:
        DataError: a set is empty or a score is not finite.
        OptionError: no replicates.
    """
    ranked = []
    for scores in ood_scores.values():
        distinct, _, _ = count_scores(id_scores, scores)
        ranked.append((distinct.size, np.searchsorted(distinct, id_scores), np.searchsorted(distinct, scores)))

    def resampled(id_positions: IntArray, *ood_positions: IntArray) -> Sequence[float]:
        values: list[float] = []
        for (size, id_ranks, ood_ranks), positions in zip(ranked, ood_positions, strict=True):
            id_counts = np.bincount(id_ranks[id_positions], minlength=size)
            values += astuple(metrics_from_counts(id_counts, np.bincount(ood_ranks[positions], minlength=size)))
        return values

    sizes = [len(id_scores), *(len(scores) for scores in ood_scores.values())]
    found = bootstrap(resampled, sizes, replicates, seed)
    parts = np.split(found, len(ood_scores), axis=1)
    return {name: _by_field(OodMetrics, part) for name, part in zip(ood_scores, parts, strict=True)}


def _by_field(metrics: type[ClassificationMetrics] | type[OodMetrics], values: FloatArray) -> dict[str, FloatArray]:
    return dict(zip(metrics.__dataclass_fields__, values.T, strict=True))
