"""Estimates from answers: their accuracy, without labels or by labels of some inputs, and the shares of classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaincinv, betaln, xlog1py, xlogy

from hydractl.checkpoint.calibration import Baseline

NORMAL = 1.959964  # deviations of a 95 % interval
ASSUMPTIONS = {
    "mean confidence": "if confidence is as honest on these inputs as on the calibration samples",
    "ATC": "if the share of answers above the calibration samples' confidence threshold still equals the accuracy",
}


@dataclass(frozen=True)
class ShareEstimate:
    """A share and its 95 % interval, 0 to 1."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % (95 % {100 * self.low:.1f} to {100 * self.high:.1f})"


@dataclass(frozen=True)
class Confidence:
    """Sums over n answers: of their confidence, of its squares, and of those at the threshold of ATC or above."""

    n: int
    total: float
    squares: float
    above: int

    @classmethod
    def summed(cls, parts: Iterable[Confidence]) -> Confidence:
        """Returns the sums over the answers of several streams."""
        return cls(*map(sum, zip(*map(astuple, parts), strict=True)))


def estimates(seen: Confidence, baseline: Baseline | None) -> dict[str, ShareEstimate]:
    """Returns the accuracy of answers without labels by each method that the calibration allows; see `ASSUMPTIONS`.

    Mean confidence: the accuracy on the calibration samples, plus the change of the mean confidence since. ATC: the
    share of answers whose confidence reaches the threshold that as many calibration samples reach as were right, less
    those that reach it there by ties alone. Intervals count the chance of both samples, as normal.

    Source: DoC Guillory et al. 2021, ATC Garg et al. 2022.

    >>> known = Baseline(samples=400, accuracy=0.8, confidence=0.82, threshold=0.6, labels=(200, 200))
    >>> {name: str(one) for name, one in estimates(Confidence(100, 72.0, 53.0, 75), known).items()}
    {'mean confidence': '70.0 % (95 % 65.5 to 74.5)', 'ATC': '75.0 % (95 % 65.6 to 84.4)'}
    """
    if not seen.n:
        return {}
    mean = seen.total / seen.n
    spread = max(seen.squares / seen.n - mean**2, 0) / seen.n
    if baseline is None:
        return {"mean confidence": _around(mean, spread)}
    smoothed = (baseline.accuracy * baseline.samples + 1) / (baseline.samples + 2)  # all right may be chance
    chance = smoothed * (1 - smoothed) / baseline.samples
    share = seen.above / seen.n
    tied = 0.0 if baseline.above is None else baseline.above - baseline.accuracy
    return {
        "mean confidence": _around(baseline.accuracy + mean - baseline.confidence, spread + chance),
        "ATC": _around(share - tied, share * (1 - share) / seen.n + chance),
    }


def _around(value: float, variance: float) -> ShareEstimate:
    wide = NORMAL * sqrt(variance)
    return ShareEstimate(*(min(max(bound, 0.0), 1.0) for bound in (value, value - wide, value + wide)))


def exact_share(count: float, of: float) -> ShareEstimate | None:
    """Returns a share with its 95 % interval by Clopper and Pearson (1934); None of nothing."""
    if not of:
        return None
    low = float(betaincinv(count, of - count + 1, 0.025)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 0.975)) if count < of else 1.0
    return ShareEstimate(count / of, low, high)


def labelled_accuracy(right: int, labelled: int) -> ShareEstimate:
    """Returns the accuracy of labelled answers with a confidence sequence, which holds after every label.

    An accuracy p is outside if bets against it, a uniform mixture of all others, have won 20: if
    B(right + 1, wrong + 1) / (p^right (1 - p)^wrong) is that much. The true accuracy is ever outside with a
    probability of at most 5 %, however often one looks.

    Source: Robbins 1970; Ville 1939.

    >>> str(labelled_accuracy(9, 10))
    '90.0 % (95 % 45.5 to 100.0)'
    """
    wrong = labelled - right

    def won(share: float) -> float:
        capital = betaln(right + 1, wrong + 1) - xlogy(right, share) - xlog1py(wrong, -share)
        return float(capital - log(20))

    best, end = right / labelled, 1e-12
    low = 0.0 if not right else brentq(won, end, min(max(best, end), 1 - end), xtol=1e-9)
    high = 1.0 if not wrong else brentq(won, min(max(best, end), 1 - end), 1 - end, xtol=1e-9)
    return ShareEstimate(best, low, high)


FloatArray = NDArray[np.float64]
#: The most probable classes of one input, each with its probability.
Likely = tuple[tuple[int, float], ...]
ENTRIES, SMALLEST = 10, 1e-3  # classes kept for an input, and the least of their probabilities
STEPS, CLOSE = 1000, 1e-7  # of EM, and the change of a share at which it ends
LEAST = 1e-6  # information on a share, so that what nothing is known of has a wide interval


def likely(probabilities: NDArray[np.floating]) -> Likely:
    """Returns the most probable classes of one input, `[C]`, one at least, rounded as a state file keeps them."""
    first, *others = np.argsort(-probabilities, kind="stable")[:ENTRIES].tolist()
    places = [first, *(at for at in others if probabilities[at] >= SMALLEST)]
    return tuple((at, max(round(float(probabilities[at]), 4), 1e-4)) for at in places)


def class_shares(rows: Sequence[Likely], labels: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Returns the shares of C classes among inputs, `[C]`, and the half width of their 95 % intervals.

    By EM: each input's probabilities count for the class shares of the calibration samples, and change in proportion
    to the shares. They are right if nothing but the shares has changed, and probabilities are calibrated. Intervals
    follow from the curvature of the likelihood.

    Args:
        labels: how many calibration samples each class has, `[C]`.

    Source: Saerens et al. 2002.

    >>> shares, _ = class_shares([((0, 0.9), (1, 0.1))] * 3 + [((0, 0.1), (1, 0.9))], [50, 50])
    >>> shares.round(2).tolist()
    [0.81, 0.19]
    """
    expected = (np.array(labels) + 0.5) / (np.sum(labels) + 0.5 * len(labels))
    ratio = np.zeros((len(rows), len(labels)))
    for at, row in enumerate(rows):
        for place, probability in row:
            ratio[at, place] = probability / expected[place]
    shares = expected
    for _ in range(STEPS):
        before, shares = shares, shares * (ratio / (ratio @ shares)[:, None]).mean(0)
        if np.abs(shares - before).max() < CLOSE:
            break
    slope = ratio / (ratio @ shares)[:, None]
    # Shares sum to 1: only directions within that plane are free. The inputs know some, LEAST is known of all of them.
    slope -= slope.mean(1, keepdims=True)
    _, sizes, directions = np.linalg.svd(slope, full_matrices=False)
    kept = sizes > sizes.max(initial=0) * len(labels) * np.finfo(np.float64).eps
    squares, parts = np.square(sizes[kept, None]), np.square(directions[kept])
    unknown = 1 - 1 / len(labels) - parts.sum(0)
    variance = np.where(unknown > 1e-12, unknown, 0) / LEAST + (parts / (squares + LEAST)).sum(0)
    return shares, NORMAL * np.sqrt(variance)
