"""Measures false alarms and delays of `hydractl monitor` by simulation, beside tests of fixed windows.

    python monitor_study.py [RUNS [ALPHA]]

Scores of ID inputs are normal; those of odd inputs are shifted by 3.2 deviations (AUROC 98.8 %), or 1.81 (90 %). Each
run draws a fresh calibration set. False alarms: 100,000 ID inputs. Delay: 10,000 ID inputs, then 30,000 with a share of
odd ones. Fixed windows have 500 inputs; each is tested at alpha / 200, for 200 windows in 100,000 inputs:

- binomial: how many typicalities are up to 5 %, as if exactly 5 % were expected
- beta-binomial: the same, with the chance of the calibration set
- KS: largest distance between the typicalities and the uniform distribution
- KS of two samples: the same distance, with the chance of the calibration set
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import betabinom, binom, kstwobign

from hydractl.monitoring.stream import EDGES, SHARES, Evidence, Scale

ALPHA = float(sys.argv[2]) if len(sys.argv) > 2 else 0.05
WINDOW, STREAM = 500, 100_000
BEFORE, AFTER = 10_000, 30_000
WATCHES = ("evidence", "binomial", "beta-binomial", "KS", "KS of two samples")
QUANTILES = 1000  # that a file stores at most


class Stream:
    """Windows of typicalities `[R,W]` as steps from 1, of R services with a calibration set each."""

    def __init__(self, samples: int, runs: int, seed: int) -> None:
        self.random, self.runs = np.random.default_rng(seed), runs
        self.quantiles = min(samples, QUANTILES)
        # Levels: how probable it is that an ID input is at least as odd, so uniform, and small for odd inputs.
        levels = np.sort(self.random.random((runs, samples)), axis=1)[:, ::-1]
        ranks = -(-np.arange(1, self.quantiles + 1) * (samples + 1) // (self.quantiles + 1))
        self.known = levels[:, ranks - 1][:, ::-1]

    def windows(self, count: int, share: float = 0.0, shift: float = 0.0) -> Iterator[NDArray[np.int64]]:
        """Yields windows in which a share of the inputs is odd."""
        for _ in range(count):
            levels = self.random.random((self.runs, WINDOW))
            if share:
                odd = self.random.random(levels.shape) < share
                levels = np.where(odd, ndtr(ndtri(levels) - shift), levels)
            yield np.stack([1 + np.searchsorted(*pair) for pair in zip(self.known, levels, strict=True)])


class Watch:
    """All tests, side by side; `first` `[R]` has the input of each one's first alarm, or infinity."""

    def __init__(self, samples: int, stream: Stream) -> None:
        self.scale = Scale(samples, stream.quantiles)
        parts = (stream.runs, len(EDGES))
        self.evidence = Evidence(self.scale, low=np.zeros(parts), capital=np.zeros((*parts, len(SHARES))))
        self.first = {name: np.full(stream.runs, np.inf) for name in WATCHES}
        level, own = ALPHA * WINDOW / STREAM, int(self.scale.cells[3])
        self.most = {
            "binomial": binom.isf(level, WINDOW, EDGES[3]),
            "beta-binomial": betabinom.isf(level, WINDOW, own, samples + 1 - own),
            "KS": kstwobign.isf(level) / np.sqrt(WINDOW),
            "KS of two samples": kstwobign.isf(level) * np.sqrt(1 / WINDOW + 1 / samples),
        }

    def add(self, window: NDArray[np.int64]) -> None:
        for low in (window[..., None] <= self.scale.steps).swapaxes(0, 1):
            self.evidence.add(low)
            self._note("evidence", self.evidence.value >= 1 / ALPHA)
        rare = (window <= self.scale.steps[3]).sum(1)
        share = np.sort(window, axis=1) / (self.scale.quantiles + 1)
        above = np.arange(1, WINDOW + 1) / WINDOW - share
        # Typicality has steps: a uniform one is up to a step below.
        distance = np.maximum(above, -above + 1 / WINDOW - 1 / (self.scale.quantiles + 1)).max(1)
        for name, value in zip(WATCHES[1:], (rare, rare, distance, distance), strict=True):
            self._note(name, value > self.most[name])

    def _note(self, name: str, alarm: NDArray[np.bool_]) -> None:
        self.first[name] = np.where(alarm, np.minimum(self.first[name], self.evidence.seen), self.first[name])


def false_alarms(samples: int, runs: int) -> dict[str, float]:
    stream = Stream(samples, runs, seed=samples)
    watch = Watch(samples, stream)
    for window in stream.windows(STREAM // WINDOW):
        watch.add(window)
    return {name: float(np.isfinite(first).mean()) for name, first in watch.first.items()}


def delays(samples: int, runs: int, share: float, shift: float) -> dict[str, str]:
    """The median delay of runs without a false alarm before, its 90 % quantile and the share that missed it."""
    stream = Stream(samples, runs, seed=samples + 1)
    watch = Watch(samples, stream)
    for window in stream.windows(BEFORE // WINDOW):
        watch.add(window)
    for window in stream.windows(AFTER // WINDOW, share, shift):
        watch.add(window)
        if all((first < np.inf).all() for first in watch.first.values()):
            break
    found = {}
    for name, first in watch.first.items():
        late = first[first > BEFORE] - BEFORE
        middle, most = np.quantile(late, [0.5, 0.9], method="inverted_cdf") if late.size else (np.nan, np.nan)
        found[name] = " / ".join("-" if not np.isfinite(one) else f"{one:,.0f}" for one in (middle, most))
    return found


def main(runs: int) -> None:
    print(f"False alarms in 100,000 ID inputs, %; {runs} runs, alpha {100 * ALPHA:g} %\n")
    print(f"| calibration samples | {' | '.join(WATCHES)} |\n|---|{'---:|' * len(WATCHES)}")
    for samples in (300, 1000, 5000):
        found = false_alarms(samples, runs)
        print(f"| {samples} | {' | '.join(f'{100 * found[name]:.1f}' for name in WATCHES)} |", flush=True)
    print("\nInputs until the alarm, median / 90 % quantile; - where it never came\n")
    print(f"| AUROC, samples, odd inputs | {' | '.join(WATCHES)} |\n|---|{'---:|' * len(WATCHES)}")
    for auroc, shift in (("98.8", 3.2), ("90", 1.81)):
        for samples in (300, 1000, 5000):
            for share in (0.02, 0.05, 0.1, 0.2):
                found = delays(samples, runs, share, shift)
                cells = " | ".join(found[name] for name in WATCHES)
                print(f"| {auroc} %, {samples}, {100 * share:g} % | {cells} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
