"""Numbers a sample, as they are or by a sigmoid: losses, errors, ranking, intervals, and what an answer shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import ceil, pi
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.calibration import INTERVAL, Intervals
from hydractl.checkpoint.spec import SIGMOID, TaskName
from hydractl.errors import DataError, OptionError
from hydractl.metrics.arrays import BoolArray, FloatArray, IntArray, Logits
from hydractl.metrics.bootstrap import by_field, draw_places
from hydractl.metrics.scaling import FittedIntervals, FittedTemperature, lowest_temperature
from hydractl.tasks.labels import Labels, mean_logits, tabulate_label_sets
from hydractl.tasks.task import FINE, Answers, Judged, Matcher, Names, Task, Trials, by_ranks, number_or_none

if TYPE_CHECKING:
    from torch import Tensor

STEPS, LEAST = 50, 1e-6  # of the fit of deviations: its steps, and the least floor as a share of the mean square


@dataclass(frozen=True)
class Numbers(Task):
    """C numbers; with a sigmoid they are from 0 to 1, and labels of 0 and 1 make them probabilities of labels."""

    name: TaskName
    names: Names
    sigmoid: bool = False

    answers: ClassVar[str] = "numbers"
    measured: ClassVar[str] = "R2"
    parts: ClassVar[int] = FINE
    loss_name: ClassVar[str] = "loss"
    objective: ClassVar[Literal["acc", "avg"]] = "acc"
    tells_ood: ClassVar[Literal["scores", "confidence", "nothing"]] = "nothing"
    promises: ClassVar[tuple[str, ...]] = ("interval",)
    or_else: ClassVar[str | None] = None

    def card(self) -> str:
        return self._labels.card() if self.sigmoid else "Its logits are the mean of the members' numbers."

    @property
    def config(self) -> dict[str, Any]:
        return {"sentence_transformers": {"activation_fn": SIGMOID}} if self.sigmoid else {}

    @property
    def _labels(self) -> Labels:
        """The task of answers whose labels are 0 and 1."""
        return Labels(self.name, self.names)

    def match(self, matcher: Matcher) -> Any:
        return matcher.numbers(unit=self.sigmoid)

    def truth(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Returns whole numbers where a sigmoid answers and all are 0 or 1: such answers are right or wrong."""
        return labels.astype(np.int64) if self.sigmoid and np.isin(labels, (0, 1)).all() else labels

    def has_accuracy(self, labels: NDArray[Any] | None) -> bool:
        return labels is None or labels.dtype.kind != "f"

    def link(self, member_logits: Tensor, temperature: float) -> Tensor:
        if self.sigmoid:
            return mean_logits(member_logits, temperature)
        import torch

        wide = member_logits.to(torch.promote_types(member_logits.dtype, torch.float32))
        return (wide / temperature).mean(0)

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if self.sigmoid else logits.clone()

    def losses(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Returns the squared error `[G*B]`, the mean over numbers; of a sigmoid the binary cross-entropy.

        Raises:
            OptionError: label smoothing, which numbers have none of.
        """
        labels = labels.reshape(logits.shape[1:])  # transformers' Trainer gives `[B]`
        if self.sigmoid:
            return self._labels.losses(logits, labels, smoothing)
        if smoothing:
            raise OptionError(f"`settings` label_smoothing={smoothing:g} is for classes, not for numbers: leave it out")
        return (logits - labels.to(logits.dtype)).square().mean(-1).flatten()

    def taught_losses(self, logits: Tensor, taught: Tensor) -> Tensor:
        if self.sigmoid:
            return self._labels.taught_losses(logits, taught)
        return (logits - taught.to(logits.dtype)).square() / logits.shape[-1]

    def outlier_losses(self, logits: Tensor) -> Tensor:
        if self.sigmoid:
            return self._labels.outlier_losses(logits)
        raise OptionError("`outlier_data` teaches classifiers to be unsure, but this is a regression: leave it out")

    def judge(self, members: FloatArray, labels: Any, variance: FloatArray | None = None) -> Judged:
        """Returns what each sample adds to R2, 1 - squared error / variance, the mean over numbers, and the loss.

        Raises:
            DataError: labels that are all alike.
        """
        import torch

        assert labels is not None and variance is not None  # OOD samples are refused: numbers have no confidence
        require_varied(variance)
        logits, truth = self.link(torch.from_numpy(members), 1.0), torch.from_numpy(labels)
        shares = 1 - (self.probabilities(logits) - truth).square() / torch.from_numpy(variance)
        return Judged(shares.mean(-1).numpy(), None, self.losses(logits[None], truth).numpy())

    def variance(self, labels: NDArray[Any]) -> FloatArray:
        # Rounding gives equal numbers a variance: ten of 0.1 have 1.9e-34.
        return np.asarray(labels.var(0) * (labels != labels[:1]).any(0))

    def table(self, answers: Answers) -> Any:
        if answers.truth is None:
            return None
        if answers.truth.dtype.kind != "f":
            return self._labels.table(answers)
        return self._number_table(answers)

    def _number_table(self, answers: Answers) -> NumberTable:
        labels = answers.labelled[1].astype(np.float64)
        columns = self._numbers(answers.logits, answers.calibration.divisor, answers.calibration.intervals)
        return NumberTable(labels=labels, **columns)

    def metrics(self, table: Any) -> dict[str, Any]:
        if not isinstance(table, NumberTable):
            return self._labels.metrics(table)
        return {name: value for name, value in asdict(number_metrics(table)).items() if value == value}

    def replicates(self, table: Any, draws: int, seed: int) -> dict[str, FloatArray]:
        if not isinstance(table, NumberTable):
            return self._labels.replicates(table, draws, seed)
        drawn = number_replicates(table, draws, seed)
        return {name: values for name, values in drawn.items() if not np.isnan(values).any()}

    def choices(self, answers: Answers) -> tuple[BoolArray, int] | None:
        _, labels = answers.labelled
        return None if labels.dtype.kind == "f" else self._labels.choices(answers)

    def right(self, table: Any) -> BoolArray | None:
        """Returns whether the interval of each answer holds the right number, of all of its numbers."""
        if not isinstance(table, NumberTable):
            return super().right(table)
        return None if table.low is None else np.asarray(_held(table).all(-1))

    def trials(self, answers: Answers) -> Iterator[Trials]:
        intervals, fit = answers.calibration.intervals, answers.calibration.fit
        if intervals is not None and fit is not None and answers.truth is not None:
            table = self._number_table(answers)  # of labels 0 and 1 too
            chance = by_ranks(fit.samples // 2, intervals.share)  # half of the samples fit the width
            for held, name in zip(_held(table).T, answers.names, strict=True):
                yield Trials("interval", intervals.share, held, name if len(answers.names) > 1 else "", chance)

    def fit(self, answers: Answers, interval: float = INTERVAL, precision: float | None = None) -> FittedTemperature:
        """Returns a temperature for labels of 0 and 1 under a sigmoid, otherwise intervals for a share of samples."""
        member_logits, labels = answers.labelled
        if labels.dtype.kind != "f":
            return fit_logit(member_logits, labels)
        columns = self._numbers(member_logits, 1.0)
        return fit_intervals(columns["values"], columns["spread"], labels, interval)

    def columns(self, answers: Answers) -> Mapping[str, Any]:
        """Returns values, spread, deviation, low and high `[N,C]`; the last three None without intervals."""
        calibration = answers.calibration
        columns = self._numbers(answers.logits, calibration.divisor, calibration.intervals)
        narrow = {name: values.astype(answers.logits.dtype) for name, values in columns.items()}
        return {"deviation": None, "low": None, "high": None, **narrow}

    def _numbers(
        self, member_logits: Logits, temperature: float, intervals: Intervals | None = None
    ) -> dict[str, FloatArray]:
        """Returns the answers `[N,C]` in float64, with their intervals where there are some."""
        from scipy.special import expit

        members = member_logits.astype(np.float64) / temperature
        members = expit(members) if self.sigmoid else members
        values, spread = members.mean(0), members.std(0)
        if intervals is None:
            return {"values": values, "spread": spread}
        deviation = np.hypot(spread * np.array(intervals.scale), np.array(intervals.floor))
        reach = np.array(intervals.width) * deviation
        low, high = (np.clip(end, 0, 1) if self.sigmoid else end for end in (values - reach, values + reach))
        return {"values": values, "spread": spread, "deviation": deviation, "low": low, "high": high}

    def row(self, answers: Answers, at: int) -> dict[str, Any]:
        shown = {"value": "values", "spread": "spread", "low": "low", "high": "high"}
        columns = {name: answers.columns[column] for name, column in shown.items()}
        present = {
            name: iter(map(number_or_none, numbers[at])) for name, numbers in columns.items() if numbers is not None
        }
        suffixes = [""] if len(answers.names) == 1 else [f"({name})" for name in answers.names]
        return {f"{name}{suffix}": next(numbers) for suffix in suffixes for name, numbers in present.items()}


def require_varied(variance: FloatArray | None) -> None:
    """Raises DataError if it is 0 for a number, as then R2 has no meaning; None is of other tasks."""
    if variance is not None and not variance.all():
        raise DataError("all samples have the same number, so R2 is undefined: give more data")


@dataclass(frozen=True, eq=False)
class NumberTable:
    """The answers of an ensemble in numbers, all `[N,C]`; the last three None without calibrated intervals."""

    values: FloatArray
    spread: FloatArray  # the standard deviation between members
    labels: FloatArray
    deviation: FloatArray | None = None  # the standard deviation that is expected of an error
    low: FloatArray | None = None
    high: FloatArray | None = None


def _held(table: NumberTable) -> BoolArray:
    """Returns whether each interval holds the right number, `[N,C]`."""
    assert table.low is not None and table.high is not None
    return np.asarray((table.low <= table.labels) & (table.labels <= table.high))


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
        each += [gaussian_nll(errors, table.deviation), _held(table), table.high - table.low]
    by_sample = np.stack([values.mean(-1) for values in each])

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
    ranks = [_ranks(values) - (len(values) + 1) / 2 for values in (first, second)]
    scale = float(np.sqrt(np.square(ranks[0]).sum() * np.square(ranks[1]).sum()))
    return float(ranks[0] @ ranks[1] / scale) if scale else float("nan")


def _ranks(values: FloatArray) -> FloatArray:
    """Returns ranks [N] from 1 on; scipy's come with modules that take a second to import."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


def fit_intervals(values: FloatArray, spread: FloatArray, labels: FloatArray, share: float) -> FittedIntervals:
    """Returns the intervals that hold the right number in a share of samples like these.

    Half of the samples, drawn at random, fit the deviation by maximum likelihood, the others its multiple by split
    conformal prediction, so that the promise holds for exchangeable samples whatever their errors and order are like.

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
    order = np.random.default_rng(0).permutation(len(errors))
    fit, measure = order[held:], order[:held]
    scale, floor = np.array([_deviation(*pair) for pair in zip(errors[fit].T, spread[fit].T, strict=True)]).T
    deviation = np.hypot(spread * scale, floor)
    width = np.sort(np.abs(errors[measure]) / deviation[measure], axis=0)[rank - 1]
    plain = np.hypot(np.sqrt(np.square(errors).mean(axis=0)), floor * LEAST)
    before, after = (float(gaussian_nll(errors, deviations).mean()) for deviations in (plain, deviation))
    intervals = Intervals(share, *map(tuple, np.stack([scale, floor, width]).tolist()))
    return FittedIntervals(1.0, before, after, at_bound=False, argmax_changed=0.0, intervals=intervals)


def _deviation(errors: FloatArray, spread: FloatArray) -> tuple[float, float]:
    """Returns the scale of the spread and the floor of errors [N] whose normal distribution is likeliest.

    Fisher's scoring: least squares of the squared errors, weighted by the variances found last.
    """
    from scipy.optimize import nnls

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
        return float(tabulate_label_sets(member_logits, labels, temperature).required_outcomes().nll.mean())

    temperature, before, after, at_bound = lowest_temperature(nll)
    return FittedTemperature(temperature, before, after, at_bound=at_bound, argmax_changed=0.0)
