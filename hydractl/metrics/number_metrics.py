"""Metrics of numbers: errors, ranking, intervals and their fit by split conformal prediction."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, pi

import numpy as np
from scipy.optimize import nnls

from hydractl.checkpoint.calibration import Intervals
from hydractl.errors import DataError
from hydractl.metrics.bootstrap import by_field, draw_places
from hydractl.metrics.checks import FloatArray, IntArray, Logits
from hydractl.metrics.label_sets import tabulate_label_sets
from hydractl.metrics.scaling import FittedTemperature, FittedVector, fit_vector, lowest_temperature

TOP = 10  # ranks that NDCG counts
STEPS, LEAST = 50, 1e-6  # of the fit of deviations: its steps, and the least floor as a share of the mean square


@dataclass(frozen=True, eq=False)
class NumberTable:
    """The answers of an ensemble in numbers, all `[N,C]`; the last three None without calibrated intervals."""

    values: FloatArray
    spread: FloatArray  # the standard deviation between members
    labels: FloatArray
    deviation: FloatArray | None = None  # the standard deviation that is expected of an error
    low: FloatArray | None = None
    high: FloatArray | None = None


@dataclass(frozen=True)
class NumberMetrics:
    """Quality of numbers, means over them; NaN for what needs intervals, and where ranks are all alike."""

    spearman: float
    mse: float
    mae: float
    spread: float
    nll: float = float("nan")  # of a normal distribution of the expected deviation, nats
    coverage: float = float("nan")  # the share of intervals that hold the right number
    width: float = float("nan")  # of intervals, on both sides together


def gaussian_nll(errors: FloatArray, deviation: FloatArray) -> FloatArray:
    """Returns -log of the density of errors under normal distributions around 0, nats."""
    return np.asarray(np.log(deviation) + np.square(errors / deviation) / 2 + np.log(2 * pi) / 2)


def number_metrics(table: NumberTable) -> NumberMetrics:
    """Returns every number of labelled samples."""
    return _measured(table)(np.arange(len(table.values)))


def number_replicates(table: NumberTable, replicates: int = 1000, seed: int = 0) -> dict[str, FloatArray]:
    """Returns resampled values [draws] of every field of NumberMetrics."""
    drawn = draw_places([len(table.values)], replicates, seed)
    return by_field(NumberMetrics, [of(places) for of in [_measured(table)] for [places] in drawn])


def _measured(table: NumberTable) -> Callable[[IntArray], NumberMetrics]:
    """Returns the metrics of the samples at some places, some of them several times."""
    errors = table.labels - table.values
    each = [np.square(errors), np.abs(errors), table.spread]
    if table.deviation is not None and table.low is not None and table.high is not None:
        inside = (table.low <= table.labels) & (table.labels <= table.high)
        each += [gaussian_nll(errors, table.deviation), inside, table.high - table.low]
    by_sample = np.stack([one.mean(-1) for one in each])

    def of(places: IntArray) -> NumberMetrics:
        pairs = zip(table.values[places].T, table.labels[places].T, strict=True)
        ranks = float(np.mean([spearman(*pair) for pair in pairs]))
        return NumberMetrics(ranks, *by_sample[:, places].mean(-1).tolist())

    return of


def spearman(first: FloatArray, second: FloatArray) -> float:
    """Returns the correlation of the ranks of two arrays [N], ties at their mean rank; NaN if one is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
    0.5
    """
    ranks = [_ranks(one) - (len(one) + 1) / 2 for one in (first, second)]
    scale = float(np.sqrt(np.square(ranks[0]).sum() * np.square(ranks[1]).sum()))
    return float(ranks[0] @ ranks[1] / scale) if scale else float("nan")


def _ranks(values: FloatArray) -> FloatArray:
    """Returns ranks [N] from 1 on; scipy's come with modules that take a second to import."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


@dataclass(frozen=True)
class FittedIntervals(FittedTemperature):
    """Intervals, which change no answer, and the NLL with one deviation for all samples and with theirs."""

    intervals: Intervals

    def __str__(self) -> str:
        found = self.intervals
        sides = (np.array(found.width) * np.array(found.floor)).tolist()
        return f"intervals for {100 * found.share:g} %, {', '.join(f'{one:.3g}' for one in sides)} to each side or more"


def fit_intervals(values: FloatArray, spread: FloatArray, labels: FloatArray, share: float) -> FittedIntervals:
    """Returns the intervals that hold the right number in a share of samples like these.

    Every second sample fits the deviation by maximum likelihood, the others its multiple by split conformal prediction,
    so that the promise holds for exchangeable samples whatever the errors are like.

    Args:
        values: [N,C], as the spread and the labels.

    Raises:
        DataError: the samples are too few for the share.

    Source: Lei et al. 2018, section 5.2 (locally weighted); Angelopoulos & Bates 2021, section 2.2.
    """
    errors, held = labels - values, len(labels) // 2
    rank = ceil((held + 1) * share)
    if rank > held:
        least = 2 * ceil(share / (1 - share) - 1e-9)
        raise DataError(f"{len(errors)} samples are too few for intervals of {100 * share:g} %: give {least} or more")
    scale, floor = np.array([_deviation(*pair) for pair in zip(errors[::2].T, spread[::2].T, strict=True)]).T
    deviation = np.hypot(spread * scale, floor)
    width = np.sort(np.abs(errors[1::2]) / deviation[1::2], axis=0)[rank - 1]
    plain = np.hypot(np.sqrt(np.square(errors).mean(axis=0)), floor * LEAST)
    before, after = (float(gaussian_nll(errors, one).mean()) for one in (plain, deviation))
    intervals = Intervals(share, *map(tuple, np.stack([scale, floor, width]).tolist()))
    return FittedIntervals(1.0, before, after, at_bound=False, argmax_changed=0.0, intervals=intervals)


def _deviation(errors: FloatArray, spread: FloatArray) -> tuple[float, float]:
    """Returns the scale of the spread and the floor of errors [N] whose normal distribution is likeliest.

    Fisher's scoring: least squares of the squared errors, weighted by the variances found last.
    """
    squares = np.square(errors)
    least = max(float(squares.mean()) * LEAST, float(np.finfo(np.float32).tiny))  # of the floor, to keep NLL finite
    design, parts = np.stack([np.square(spread), np.ones_like(spread)], axis=1), np.array([0.0, squares.mean() + least])
    for _ in range(STEPS):
        variance = design @ parts
        parts = np.maximum(nnls(design / variance[:, None], squares / variance)[0], [0, least])
    return float(np.sqrt(parts[0])), float(np.sqrt(parts[1]))


def fit_logit(member_logits: Logits, labels: IntArray) -> FittedTemperature:
    """Returns the temperature with the lowest binary NLL of one logit [M,N,1], for labels [N,1] of 0 or 1."""

    def nll(temperature: float) -> float:
        return float(tabulate_label_sets(member_logits, labels, temperature).labelled().nll.mean())

    temperature, before, after, at_bound = lowest_temperature(nll)
    return FittedTemperature(temperature, before, after, at_bound=at_bound, argmax_changed=0.0)


def fit_platt(member_logits: Logits, labels: IntArray) -> FittedVector:
    """Returns the scale and shift with the lowest binary NLL of one logit [M,N,1], for labels [N,1] of 0 or 1.

    Source: Platt 1999; a sigmoid of z is the softmax of 0 and z.
    """
    found = fit_vector(np.concatenate([np.zeros_like(member_logits), member_logits], -1), labels[:, 0])
    return replace(found, scale=found.scale[1:], shift=(found.shift[1] - found.shift[0],))


def ranking_metrics(scores: FloatArray, labels: FloatArray, queries: IntArray) -> dict[str, FloatArray]:
    """Returns NDCG@10 and the reciprocal rank of the first relevant sample of each query, `[Q]` each.

    A sample is relevant by the size of its label, not at all at 0. Of equal scores the less relevant ranks first, so
    that a constant score gains nothing by the order of the data. Queries without a relevant sample do not count.

    Args:
        scores: [N].
        labels: [N], 0 or more.
        queries: [N], the number of each sample's query.

    Raises:
        DataError: a negative label, or no query has a relevant sample.

    Source: Järvelin & Kekäläinen 2002, with linear gains.
    """
    if (labels < 0).any():
        raise DataError(f"sample {int(np.argmax(labels < 0))} has a negative label, ranking needs 0 or more")
    order = np.lexsort((labels, -scores, queries))
    ranked = [own for own in np.split(labels[order], np.flatnonzero(np.diff(queries[order])) + 1) if own.any()]
    if not ranked:
        raise DataError("no query has a sample with a label above 0: there is nothing to rank")
    return {
        "ndcg10": np.array([_gain(own) / _gain(np.sort(own)[::-1]) for own in ranked]),
        "mrr": np.array([1 / (1 + np.argmax(own > 0)) for own in ranked]),
    }


def _gain(ranked: FloatArray) -> float:
    return float((ranked[:TOP] / np.log2(np.arange(2, len(ranked[:TOP]) + 2))).sum())
