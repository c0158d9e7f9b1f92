"""Says of each promise of a file whether samples show it kept or broken, or are too few to tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Literal

import numpy as np
from scipy.special import betaincinv
from scipy.stats import betabinom, binom

from hydractl.checkpoint.calibration import OodFit
from hydractl.metrics.arrays import BoolArray, FloatArray
from hydractl.monitoring.estimates import ShareEstimate, exact_share
from hydractl.monitoring.stream import Scale
from hydractl.tasks.task import Answers, Trials, by_ranks

State = Literal["kept", "broken", "too few to tell"]
LEVEL = 0.025  # of one side of a 95 % interval
POWER = 0.8  # the probability of finding a promise broken that fails twice as often as it may
MOST = 20_000  # cases beyond which a promise is said to need more calibration samples


@dataclass(frozen=True)
class CheckedPromise:
    """One promise of a file on some samples.

    Attributes:
        name: the option of `calibrate` that asks for it.
        of: the class, label or number that it is made for; empty for one of all.
        promised: the share of cases that should keep it.
        cases: how many there are.
        seen: the share that keeps it, with its interval by Clopper and Pearson.
        least: the share from which it counts as kept: less is due to chance, in the calibration set or here, with a
            probability of at most 2.5 % over all promises.
        state: whether it is kept.
        needed: how many samples it takes to find it broken where it fails twice as often; None where none suffice.
    """

    name: str
    of: str
    promised: float
    cases: int
    seen: ShareEstimate
    least: float
    state: State
    needed: int | None


def accepted(fit: OodFit, quantiles: int, flags: BoolArray) -> Trials:
    """Returns the cases of the promise that inputs like the calibration samples are not flagged.

    Args:
        quantiles: how many calibration scores the file stores.
        flags: `[N]`, where an input is flagged.
    """
    failing = Scale(fit.samples, quantiles).cells_below(1 - fit.accept)
    return Trials("accept", fit.accept, ~flags, chance=(failing, fit.samples + 1 - failing))


def promises_of(answers: Answers, others: Sequence[Trials]) -> tuple[CheckedPromise, ...]:
    """Returns every promise that answers to ID samples tell of.

    Args:
        others: the cases of promises that no label is needed for.
    """
    trials = [*others, *((*answers.task.trials(answers), *_recalled(answers)) if answers.truth is not None else ())]
    trials = [each for each in trials if len(each.kept)]
    return tuple(_judged(each, len(answers), answers, len(trials)) for each in trials)


def _recalled(answers: Answers) -> Iterator[Trials]:
    """Yields the samples of the promise of recall. A share that is kept varies no more than all or nothing would."""
    promise = answers.calibration.recall
    if promise is not None and (parts := answers.task.true_parts(answers)) is not None:
        groups = parts.groups(answers.names if len(promise.least) > 1 else None)
        for (name, group), samples in zip(groups.items(), promise.samples, strict=True):
            _, shares = group.kept(promise.least)
            yield Trials("recall", promise.share, shares, name, by_ranks(samples, promise.share))


def _judged(trials: Trials, samples: int, answers: Answers, promises: int) -> CheckedPromise:
    fit, cases = answers.calibration.fit, len(trials.kept)
    fitted = trials.fitted or ceil((0 if fit is None else fit.samples) * cases / samples)
    chance, level = trials.chance or _of_bound(fitted, trials.promised), LEVEL / promises
    allowed = _allowed(cases, *chance, level)
    failed = float((1.0 - trials.kept).sum())
    needed = _needed(1 - trials.promised, *chance, level)
    state: State = "kept" if needed is not None and cases >= needed else "too few to tell"
    seen = exact_share(cases - failed, cases)
    assert seen is not None
    return CheckedPromise(
        trials.promise,
        trials.of,
        trials.promised,
        cases=cases,
        seen=seen,
        least=1 - allowed / cases,
        state="broken" if failed >= allowed + 1 - 1e-6 else state,
        needed=None if needed is None else ceil(needed * samples / cases),
    )


def _of_bound(fitted: int, promised: float) -> tuple[float, float]:
    """Returns the beta distribution of the share of failures where a one-sided 95 % bound just keeps the promise.

    Of `fitted` cases the most have failed with which Clopper and Pearson's bound of the share kept is the promise.
    """
    failed = np.arange(max(fitted, 1))
    bounds = betaincinv(len(failed) - failed, failed + 1.0, 0.05)
    most = int((bounds >= promised).sum()) - 1
    return max(most, 0) + 1.0, float(len(failed) - max(most, 0))


def _tails(cases: int, failing: float, keeping: float) -> FloatArray:
    """Returns the probability of at least 0, 1, ... failures, where the share of failures is drawn from a beta."""
    masses = betabinom.pmf(np.arange(cases + 1), cases, max(failing, 1e-3), keeping)
    return np.asarray(np.cumsum(masses[::-1])[::-1])


def _allowed(cases: int, failing: float, keeping: float, level: float) -> int:
    """Returns the most failures that chance explains."""
    return int((_tails(cases, failing, keeping) >= level).sum()) - 1


@cache
def _needed(share: float, failing: float, keeping: float, level: float) -> int | None:
    """Returns how many cases show, with the probability POWER, that failures are twice as many as may be."""
    for cases in np.unique(np.geomspace(10, MOST, 60).round(-1).astype(int)).tolist():
        allowed = _allowed(cases, failing, keeping, level)
        if binom.sf(allowed, cases, min(2 * share, 0.9)) >= POWER:
            return int(cases)
    return None
