"""Fits what a file promises of its answers: sets that hold the right class, and the confidence that makes one sure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hydractl.checkpoint.calibration import OodFit, PromisedRecall, PromisedSets
from hydractl.errors import DataError
from hydractl.metrics.arrays import FloatArray
from hydractl.metrics.bootstrap import draw_places, percentile_interval
from hydractl.metrics.detection import least_answers, sure_from
from hydractl.metrics.scaling import least_probability, least_samples
from hydractl.systems.system import Share
from hydractl.tasks.task import Answers, TrueParts


@dataclass(frozen=True)
class Sure:
    """The share of ID answers or spans that the file calls sure, how many are right, and the share that it promises."""

    accuracy: Share  # promised
    share: Share
    right: Share | None  # None where no answer is sure


@dataclass(frozen=True)
class Recalled:
    """The share of true labels or spans that is answered, mean over samples with one, and what it costs in precision.

    Attributes:
        precision: the share of answered labels, or of words in offered spans, that are right.
        before: the same of the answers without the promise.
    """

    promised: Share
    kept: Share
    precision: Share
    before: Share
    kept_interval: tuple[float, float] | None = None
    precision_interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class WantedPromises:
    """The promises to fit.

    Attributes:
        accuracy: the share of sure answers that should be right; None for no sure answers.
        sets: the share of sets that should hold the right class; None for no sets.
        recall: the share of true labels or spans that should be answered; None for no such promise.
        by_class: whether each class keeps them by itself.
    """

    accuracy: float | None = None
    sets: float | None = None
    recall: float | None = None
    by_class: bool = False


def fit_sets(answers: Answers, promises: WantedPromises) -> PromisedSets | None:
    """Returns the probabilities from which classes are in a set; None if no sets are wanted.

    Raises:
        DataError: the samples, or those of a class, are too few for the promise.
    """
    coverage = promises.sets
    if coverage is None:
        return None
    _, labels = answers.labelled
    probabilities = answers.mean_p[np.arange(len(labels)), labels]
    groups = {"": probabilities}
    if promises.by_class:
        groups = {name: probabilities[labels == number] for number, name in enumerate(answers.names)}
    least = [least_probability(group, coverage) for group in groups.values()]
    bounds = [bound for bound in least if bound is not None]
    if len(bounds) < len(least):
        counts = {name: len(group) for name, group in groups.items()}
        what = f"`sets` {100 * coverage:g} %"
        raise _too_few(what, counts, least_samples(coverage), "calibration samples", by_class=promises.by_class)
    return PromisedSets(coverage, len(probabilities), tuple(bounds))


def fit_sure(answers: Answers, promises: WantedPromises) -> tuple[float, ...] | None:
    """Returns the MSP from which answers are right as often as wanted, one for all classes or `[C]`; None if not.

    Where words are labelled, it is the confidence of spans.

    Raises:
        DataError: no confidence reaches that, or the answers, or those of a class, are too few to show it.
    """
    accuracy = promises.accuracy
    if accuracy is None:
        return None
    msp, right, best, samples = answers.task.claims(answers)
    groups = {"": np.ones(len(best), bool)}
    if promises.by_class:
        groups = {name: best == number for number, name in enumerate(answers.names)}
    counts, enough = {name: int(group.sum()) for name, group in groups.items()}, least_answers(accuracy)
    share = f"{100 * accuracy:g} %"
    if min(counts.values()) < enough:
        raise _too_few(f"`accuracy` {share}", counts, enough, "answers", by_class=promises.by_class)
    bounds = {
        name: sure_from(msp[group], right[group], accuracy, None if samples is None else samples[group])
        for name, group in groups.items()
    }
    lacking = [name for name, least in bounds.items() if least is None]
    if lacking:
        of = f" of class {lacking[0]!r}" if promises.by_class else ""
        certain = f"by its 95 % bound from {counts[lacking[0]]} of them"
        raise DataError(
            f"no confidence threshold makes answers{of} right {share} of the time, {certain}: give more calibration "
            f"data, or a lower `accuracy`{_without(promises.by_class)}"
        )
    return tuple(least for least in bounds.values() if least is not None)


def measure_sure(answers: Answers, fit: OodFit) -> Sure | None:
    """Returns how sure answers do, or spans of words; None if a file promises nothing of them, or there are none."""
    msp, right, best, _ = answers.task.claims(answers)
    sure = fit.sure(msp, best)
    if sure is None or fit.accuracy is None or not len(sure):
        return None
    return Sure(fit.accuracy, float(sure.mean()), float(right[sure].mean()) if sure.any() else None)


def fit_recall(answers: Answers, promises: WantedPromises) -> PromisedRecall | None:
    """Returns the probabilities from which labels, or words as parts of spans, are answered; None if not asked for.

    Samples without a true label or span do not count.

    Raises:
        DataError: the samples, or those of a label, are too few for the promise.
    """
    share, parts = promises.recall, None if promises.recall is None else answers.task.true_parts(answers)
    if share is None or parts is None:
        return None
    if answers.places is not None and answers.truncated:
        raise DataError(
            f"`recall` counts all true spans, but {answers.truncated} of {len(answers)} calibration texts have words "
            "with labels behind the last that the model reads: divide the texts, as those that it will answer"
        )
    if not len(parts.right):
        raise DataError("`recall` needs true labels or spans, but no calibration sample has one: give data with labels")
    groups = parts.groups(answers.names if promises.by_class else None)
    counts = {name: len(np.unique(group.samples)) for name, group in groups.items()}
    least = [least_probability(group.right, share, group.samples) for group in groups.values()]
    bounds = [bound for bound in least if bound is not None]
    if len(bounds) < len(least):
        what, kind = f"`recall` {100 * share:g} %", "calibration samples with a true label or span"
        raise _too_few(what, counts, least_samples(share), kind, by_class=promises.by_class)
    return PromisedRecall(share, tuple(counts.values()), tuple(bounds))


def measure_recall(answers: Answers) -> Recalled | None:
    """Returns how the promised recall does; None without a promise, or without a true label or span."""
    promise = answers.calibration.recall
    parts = None if promise is None or answers.truth is None else answers.task.true_parts(answers)
    if promise is None or parts is None or not len(parts.right):
        return None
    sums = _sums(parts, promise.least)
    kept, before, after = _ratios(sums)
    drawn = np.array([_ratios(sums[places]) for [places] in draw_places([len(sums)])])
    intervals = [percentile_interval(drawn[:, column], len(sums)) for column in (0, 2)]
    return Recalled(promise.share, kept, after, before, *intervals)


def _sums(parts: TrueParts, least: Sequence[float]) -> FloatArray:
    """Returns numerators and denominators `[N,2,3]` of recall, and of precision without and with the promise."""
    size = int(parts.rows.max()) + 1
    sums = np.zeros((size, 2, 3))
    having, shares = parts.kept(least)
    sums[having, 0, 0], sums[having, 1, 0] = shares, 1
    for column, answered in enumerate((parts.answered, parts.p >= np.asarray(least)), 1):
        for row, counted in enumerate((answered & parts.there, answered)):
            sums[:, row, column] = np.bincount(parts.rows, counted.sum(-1), size)
    return sums


def _ratios(sums: FloatArray) -> tuple[float, ...]:
    hits, counts = sums.sum(0)
    return tuple((hits / np.maximum(counts, 1)).tolist())


def _too_few(what: str, counts: dict[str, int], least: int, kind: str, *, by_class: bool) -> DataError:
    name, count = min(counts.items(), key=lambda pair: pair[1])
    of = f" of class {name!r}" if by_class else ""
    return DataError(
        f"{what} needs at least {least} {kind}{' of each class' if by_class else ''}, but there are {count}{of}: give "
        f"more data, or promise less{_without(by_class)}"
    )


def _without(by_class: bool) -> str:
    return ", or leave out `by_class`" if by_class else ""
