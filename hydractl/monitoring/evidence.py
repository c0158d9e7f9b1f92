"""Evidence that inputs have changed: a test of their typicality that is valid at any time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

#: Typicalities at most this small are bet on, and the shares of odd inputs that a bet assumes.
EDGES = (0.002, 0.01, 0.02, 0.05, 0.1, 0.25)
SHARES = (0.02, 0.1, 0.4)
EVERY = 50  # inputs from one possible start of a change to the next
#: A bet wins no more than this, so that evidence falls again when inputs are typical again.
MOST = 1e9

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Scale:
    """The steps of typicality.

    Attributes:
        samples: how many samples typicality counts.
        quantiles: how many of their scores are stored; typicality is a multiple of 1 / (quantiles + 1).
    """

    samples: int
    quantiles: int

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """The number of steps up to each edge, `[E]`, at least 1."""
        return np.maximum(np.floor(np.array(EDGES) * (self.quantiles + 1) + 1e-9), 1).astype(np.int64)

    @cached_property
    def cells(self) -> FloatArray:
        """The number of gaps, among samples + 1 between calibration scores, up to each edge, `[E]`."""
        return np.asarray(self.steps * (self.samples + 1) // (self.quantiles + 1), dtype=np.float64)

    def cells_below(self, share: float) -> int:
        """Returns the number of such gaps that a typicality below a share has."""
        steps = int(np.ceil((share - 1e-6) * (self.quantiles + 1))) - 1
        return steps * (self.samples + 1) // (self.quantiles + 1)

    def low(self, typicality: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Returns which edges each typicality `[...]` does not exceed, `[...,E]`."""
        return np.rint(typicality * (self.quantiles + 1))[..., None] <= self.steps


@dataclass
class Evidence:
    """Evidence against "these inputs are like the calibration samples", of one stream or of several side by side.

    Typicalities count calibration samples, so of exchangeable inputs the place of the next one among the calibration
    samples and the inputs so far is uniform. Hence, whatever the calibration samples are, the next typicality is up to
    an edge with the probability (cells + inputs so far up to it) / (samples + 1 + inputs so far). A bet on a share o of
    odd inputs multiplies its capital by 1 - o, plus o / that probability if the input is up to the edge: on average by
    1. A change may start at each fiftieth input, the k-th with a weight h(k) - h(k + 1) for h(k) = 1 / (1 + log k);
    all weights sum to 1. The evidence is the mean over bets of what all starts have won, plus the weight of the starts
    to come. It begins at 1 and is a martingale. So the probability, over calibration sets and streams together, that it
    ever reaches 1 / alpha is at most alpha: over a stream of any length, not for each window or each input.

    The chance of the calibration set is part of that probability: evidence of few samples stays small, and what the
    stream itself shows makes up for them. A restart without weights (Shiryaev-Roberts) would only bound the mean number
    of inputs between false alarms. Ties between scores make the evidence smaller, which keeps the promise.

    Attributes:
        scale: the steps of typicality.
        seen: how many inputs came.
        low: how many of them were up to each edge, `[...,E]`.
        capital: what each bet has won, `[...,E,O]`.

    Source: Vovk et al. 2005, Shin et al. 2024; Ville 1939 for the bound.
    """

    scale: Scale
    seen: int = 0
    low: FloatArray = field(default_factory=lambda: np.zeros(len(EDGES)))
    capital: FloatArray = field(default_factory=lambda: np.zeros((len(EDGES), len(SHARES))))

    def add(self, low: NDArray[np.bool_]) -> None:
        """Adds one input to each stream.

        Args:
            low: from `Scale.low`, `[...,E]`.
        """
        if self.seen % EVERY == 0:
            self.capital = self.capital + _weight(self.seen // EVERY + 1) - _weight(self.seen // EVERY + 2)
        chance = (self.scale.cells + self.low) / (self.scale.samples + 1 + self.seen)
        odd = np.array(SHARES)
        won = 1 - odd + odd * (low / chance)[..., None]
        self.capital = np.minimum(self.capital * won, MOST)
        self.low, self.seen = self.low + low, self.seen + 1

    @property
    def value(self) -> FloatArray:
        """The evidence, `[...]`; 1 before the first input."""
        to_come = _weight(-(-self.seen // EVERY) + 1)
        return np.asarray(self.capital.mean((-2, -1)) + to_come)


def _weight(start: int) -> float:
    """Returns the weight of this and all later starts, from 1."""
    return float(1 / (1 + np.log(start)))
