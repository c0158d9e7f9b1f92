"""Nearest neighbours of embeddings that others keep."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hydractl.errors import DataError
from hydractl.metrics.checks import FloatArray

NEAREST = 10
BLOCK = 1024  # rows whose similarities are in memory at a time

Embeddings = NDArray[np.floating[Any]]


def kept_neighbours(reference: Embeddings, embeddings: Embeddings, nearest: int = NEAREST) -> FloatArray:
    """Returns, for each sample, the share of its nearest neighbours by the reference that are so by the embeddings.

    Neighbours are those of the highest cosine; a sample is not its own.

    Args:
        reference: `[N,P]`.
        embeddings: `[N,P']`.
        nearest: how many of them, at most N - 1.

    Raises:
        DataError: fewer than two samples.

    >>> three = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> kept_neighbours(three, three[[1, 0, 2]], nearest=1).tolist()
    [1.0, 1.0, 0.0]
    """
    count = min(nearest, len(reference) - 1)
    if count < 1:
        raise DataError("one sample has no neighbours to keep: give two or more")
    found = np.empty(len(reference))
    units = [_units(one) for one in (reference, embeddings)]
    for first in range(0, len(reference), BLOCK):
        rows = np.arange(first, min(first + BLOCK, len(reference)))
        theirs, ours = (_nearest(one, rows, count) for one in units)
        found[rows] = [len(np.intersect1d(one, other)) / count for one, other in zip(theirs, ours, strict=True)]
    return found


def _units(embeddings: Embeddings) -> FloatArray:
    wide = embeddings.astype(np.float64)
    lengths: FloatArray = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-300)
    return lengths


def _nearest(units: FloatArray, rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Returns the numbers `[B,count]` of the samples nearest to those of the rows."""
    similar = units[rows] @ units.T
    similar[np.arange(len(rows)), rows] = -np.inf
    return np.argpartition(-similar, count - 1, axis=1)[:, :count]
