"""Checks of the arrays that metrics take: shapes, types and values."""

import numpy as np
from numpy.typing import NDArray

from hydractl.errors import DataError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Logits = NDArray[np.float32] | NDArray[np.float64]


def check_member_logits(member_logits: Logits, least: int = 2) -> None:
    """Raises DataError unless these can be logits [M,N,C] of an ensemble; values are checked where they are read."""
    if member_logits.ndim != 3:
        raise DataError(f"logits of shape {member_logits.shape}: expected [members, samples, classes]")
    if member_logits.dtype not in (np.float32, np.float64):
        raise DataError(
            f"logits of type {member_logits.dtype}: expected float32 or float64, half precision blurs every metric"
        )
    members, samples, classes = member_logits.shape
    if members == 0 or samples == 0:
        raise DataError(f"logits of {members} members for {samples} samples: there is nothing to measure")
    if classes < least:
        raise DataError(f"logits of {classes} class: probabilities need at least two")


def check_labels(member_logits: Logits, labels: NDArray[np.integer]) -> IntArray:
    """Returns the labels [N] of an ensemble's logits [M,N,C] as int64.

    Raises:
        DataError: not the logits of an ensemble, or labels that are not integers, one per sample, inside the classes.
    """
    check_member_logits(member_logits)
    _, samples, classes = member_logits.shape
    if labels.shape != (samples,):
        raise DataError(f"labels of shape {labels.shape} for {samples} samples: expected one per sample")
    if not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"labels of type {labels.dtype}: expected integers")
    invalid = np.flatnonzero((labels < 0) | (labels >= classes))
    if invalid.size:
        first = int(invalid[0])
        raise DataError(f"sample {first} has label {int(labels[first])}: expected 0 to {classes - 1}")
    return labels.astype(np.int64)


def check_scores(values: NDArray[np.floating], name: str) -> FloatArray:
    """Returns the values [N] as float64.

    Args:
        name: what they are, for the message.

    Raises:
        DataError: not one-dimensional, empty, or with NaN or infinite values.
    """
    if values.ndim != 1 or values.size == 0:
        raise DataError(f"{name} of shape {values.shape}: expected one number per sample, at least one")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        first = int(bad[0])
        raise DataError(f"{name} of sample {first} is {values[first]}: expected finite numbers")
    return values.astype(np.float64)
