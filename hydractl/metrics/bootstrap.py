"""Certainty about the numbers: seeded percentile bootstrap over samples, paired across systems by seed.

A resample is how often each sample was drawn. All metrics here follow from these counts and the order of the scores,
which resampling leaves as it is: samples are sorted once, and each resample costs a few running sums.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from hydractl.errors import DataError, OptionError
from hydractl.metrics.calibration import ClassificationMetrics, equal_width_bins, mass_bin_starts
from hydractl.metrics.checks import FloatArray, IntArray, check_scores
from hydractl.metrics.ood_detection import OodMetrics
from hydractl.metrics.prediction_table import PredictionTable

LEVEL = 0.95  # share of the resampled values inside an interval
CHUNK = 2**14  # counts held at once, so that they stay in the processor's cache


def bootstrap(
    statistic: Callable[..., FloatArray], sizes: Sequence[int], replicates: int = 1000, seed: int = 0
) -> FloatArray:
    """Returns the values of a statistic on resampled data, [draws,numbers]; a few resamples are held at a time.

    Equal sizes and seed draw equal samples, so replicates of two systems on the same data are paired.

    Args:
        statistic: from one array [few,N] per data set, how often each resample drew each sample, to [few,numbers].
        sizes: the number of samples N of each data set, drawn with replacement.
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
    few = max(1, CHUNK // max(sizes))
    found = []
    for start in range(0, replicates, few):
        counts = [np.empty((min(few, replicates - start), size)) for size in sizes]
        for rows in zip(*counts, strict=True):
            for row in rows:
                row[:] = np.bincount(generator.integers(row.size, size=row.size), minlength=row.size)
        found.append(statistic(*counts))
    return np.concatenate(found)


def percentile_interval(values: FloatArray) -> tuple[float, float]:
    """Returns the bounds of the middle 95 % of resampled values [draws]."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def classification_replicates(
    table: PredictionTable, replicates: int = 1000, seed: int = 0, bins: int = 15
) -> dict[str, FloatArray]:
    """Returns resampled values [draws] of every field of ClassificationMetrics.

    Args:
        table: predictions of N samples with labels.
        replicates: how many draws.
        seed: of the draws.
        bins: of confidence, for both calibration errors.

    Raises:
        DataError: the samples have no labels.
        OptionError: no replicates.
    """
    outcomes = table.labelled()
    samples = table.msp.size
    means = np.column_stack([outcomes.correct, outcomes.brier, outcomes.nll])
    ascending = _Sorted.of(table.msp)
    gaps = (outcomes.correct - table.msp)[ascending.order]
    edges = np.searchsorted(equal_width_bins(ascending.scores, bins), np.arange(bins + 1))
    starts = mass_bin_starts(samples, bins)
    # Ties share the bin that the first of them falls into, so a bin begins with the first of a tie, or ends them all.
    first_of_tie = np.append(np.unique(ascending.left), samples)
    tie_from = first_of_tie[np.searchsorted(first_of_tie, np.arange(samples + 1))]

    def resampled(counts: FloatArray) -> FloatArray:
        drawn = ascending.sort(counts)
        gap_sums = _running(drawn * gaps)
        mass_edges = [np.append(tie_from[np.searchsorted(before, starts)], samples) for before in _running(drawn)]
        errors = [_binned_gap(gap_sums, np.broadcast_to(edges, (len(drawn), edges.size)))]
        errors += [_binned_gap(gap_sums, np.stack(mass_edges))]
        return np.column_stack([counts @ means, *errors]) / samples

    return _by_field(ClassificationMetrics, bootstrap(resampled, [samples], replicates, seed))


def accuracy_replicates(correct: NDArray[np.bool_], replicates: int = 1000, seed: int = 0) -> dict[str, FloatArray]:
    """Returns resampled values [draws] of the accuracy alone, drawn as `classification_replicates` draws.

    Args:
        correct: [N] booleans.
        replicates: how many draws.
        seed: of the draws.
    """

    def resampled(counts: FloatArray) -> FloatArray:
        return (counts @ correct)[:, None] / correct.size

    return {"accuracy": bootstrap(resampled, [correct.size], replicates, seed)[:, 0]}


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
        replicates: how many draws.
        seed: of the draws.

    Raises:
        DataError: a set is empty or a score is not finite.
        OptionError: no replicates.
    """
    inside = _Sorted.of(check_scores(id_scores, "ID score"))
    outside = [_Sorted.of(check_scores(scores, "OOD score")) for scores in ood_scores.values()]
    places = [_Places.of(inside, one) for one in outside]

    def resampled(id_counts: FloatArray, *ood_counts: FloatArray) -> FloatArray:
        ascending = inside.sort(id_counts)
        id_sums = _running(ascending)
        values = [
            place.metrics(ascending, id_sums, one.sort(counts))
            for place, one, counts in zip(places, outside, ood_counts, strict=True)
        ]
        return np.concatenate(values, axis=1)

    found = bootstrap(resampled, [inside.scores.size, *(one.scores.size for one in outside)], replicates, seed)
    parts = np.split(found, len(ood_scores), axis=1)
    return {name: _by_field(OodMetrics, part) for name, part in zip(ood_scores, parts, strict=True)}


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Scores in ascending order: which sample each is of, and the bounds of its ties, all [N]."""

    scores: FloatArray
    order: IntArray
    left: IntArray  # the first place with the same score
    right: IntArray  # the place after the last

    @classmethod
    def of(cls, scores: FloatArray) -> "_Sorted":
        order = np.argsort(scores, kind="stable")
        ascending = np.asarray(scores, dtype=np.float64)[order]
        return cls(ascending, order, *(np.searchsorted(ascending, ascending, side) for side in ("left", "right")))

    def sort(self, counts: FloatArray) -> FloatArray:
        """Returns the counts of the drawn samples, [few,N], in the order of the scores."""
        return np.take(counts, self.order, axis=1)


@dataclass(frozen=True, eq=False)
class _Places:
    """Places of one set's scores among another's, both ascending; the OOD metrics follow from them."""

    inside: _Sorted
    outside: _Sorted
    below: IntArray  # [N'] ID samples that score less than each OOD sample
    upto: IntArray  # [N'] ID samples that score as much at most
    ood_upto: IntArray  # [N] OOD samples that score as much at most as each ID sample

    @classmethod
    def of(cls, inside: _Sorted, outside: _Sorted) -> "_Places":
        below, upto = (np.searchsorted(inside.scores, outside.scores, side) for side in ("left", "right"))
        return cls(inside, outside, below, upto=upto, ood_upto=np.searchsorted(outside.scores, inside.scores, "right"))

    def metrics(self, id_counts: FloatArray, id_sums: FloatArray, ood_counts: FloatArray) -> FloatArray:
        """Returns the fields of OodMetrics of a few resamples, [few,5], as `ood_metrics` defines them.

        Args:
            id_counts: [few,N] in ascending order of the scores, as is
            ood_counts: [few,N'].
            id_sums: [few,N + 1] running sums of `id_counts`, from 0.
        """
        id_total, ood_total = self.inside.scores.size, self.outside.scores.size
        ood_sums = _running(ood_counts)
        id_below = np.take(id_sums, self.below, axis=1)
        pairs = np.einsum("rn,rn->r", ood_counts, id_below + np.take(id_sums, self.upto, axis=1))
        flagged = ood_total - np.take(ood_sums, self.outside.left, axis=1)
        aupr_out = _average_precision(ood_counts, flagged, id_total - id_below)
        found, wrong = np.take(id_sums, self.inside.right, axis=1), np.take(ood_sums, self.ood_upto, axis=1)
        aupr_in = _average_precision(id_counts, found, wrong)
        # In integers, as 0.05 * N' is not exact: the last OOD sample below which are at most 5 % of them.
        threshold = [np.searchsorted(before[:-1], 5 * ood_total // 100, "right") - 1 for before in ood_sums]
        fpr95 = (id_total - id_below[np.arange(len(threshold)), threshold]) / id_total
        share = np.full(len(pairs), ood_total / (id_total + ood_total))
        return np.column_stack([pairs / (2 * id_total * ood_total), aupr_out, aupr_in, fpr95, share])


def _running(counts: FloatArray) -> FloatArray:
    """Returns the sums of the first 0 to N counts, [few,N + 1]."""
    sums = np.zeros((len(counts), counts.shape[1] + 1))
    np.cumsum(counts, axis=1, out=sums[:, 1:])
    return sums


def _average_precision(positives: FloatArray, found: FloatArray, wrong: FloatArray) -> FloatArray:
    """Returns the step-wise average precision [few]: the mean precision at the positives.

    Args:
        positives: [few,N] how often each was drawn.
        found: [few,N] positives that its score flags, itself and ties among them.
        wrong: [few,N] negatives that it flags.
    """
    # A resample can leave the strictest thresholds without samples.
    precision = found / np.maximum(found + wrong, 1)
    return np.asarray(np.einsum("rn,rn->r", positives, precision) / positives.shape[1])


def _binned_gap(gap_sums: FloatArray, edges: IntArray) -> FloatArray:
    """Returns the sums over bins of |summed gap between correctness and confidence|, [few].

    Args:
        gap_sums: [few,N + 1] running sums of the gaps in ascending order of confidence.
        edges: [few,bins + 1] the places that bins begin and end at.
    """
    return np.asarray(np.abs(np.diff(np.take_along_axis(gap_sums, edges, axis=1), axis=1)).sum(axis=1))


def _by_field(metrics: type[ClassificationMetrics] | type[OodMetrics], values: FloatArray) -> dict[str, FloatArray]:
    return dict(zip((field.name for field in fields(metrics)), values.T, strict=True))
