"""Class shares of inputs without labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hydractl.monitoring.accuracy import NORMAL

FloatArray = NDArray[np.float64]
#: The most probable classes of one input, each with its probability.
Likely = tuple[tuple[int, float], ...]
ENTRIES, SMALLEST = 10, 1e-3  # classes kept for an input, and the least of their probabilities
STEPS, CLOSE = 1000, 1e-7  # of EM, and the change of a share at which it ends
LEAST = 1e-6  # information on a share, so that what nothing is known of has a wide interval


def likely(probabilities: NDArray[np.floating]) -> Likely:
    """Returns the most probable classes of one input, `[C]`, rounded as a state file keeps them."""
    places = np.argsort(-probabilities, kind="stable")[:ENTRIES]
    return tuple((int(at), round(float(probabilities[at]), 4)) for at in places if probabilities[at] >= SMALLEST)


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
    # Shares sum to 1: only directions within that plane are free.
    free = np.linalg.svd(np.ones((1, len(labels))))[2][1:].T
    known_by = free.T @ slope.T @ slope @ free + LEAST * np.eye(len(labels) - 1)
    covariance = free @ np.linalg.inv(known_by) @ free.T
    return shares, NORMAL * np.sqrt(np.maximum(covariance.diagonal(), 0))
