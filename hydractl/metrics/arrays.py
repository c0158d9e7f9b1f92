"""Arrays that metrics take: their types, their checks, and the probabilities that member logits stand for."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hydractl.errors import DataError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Logits = NDArray[np.float32] | NDArray[np.float64]
# Member logits held in float64 at once: 16 MiB, a few times that with the temporaries.
_CHUNK_ELEMENTS = 2**21
# Beyond any float32 logit over any sensible temperature, far below where differences overflow float64.
_LARGEST_LOGIT = 1e100


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


def sample_chunks(member_logits: Logits, least: int = 2) -> Iterator[slice]:
    """Yields consecutive ranges of samples whose logits [M,n,C], C at `least`, fit the working memory."""
    check_member_logits(member_logits, least)
    members, samples, classes = member_logits.shape
    size = max(1, _CHUNK_ELEMENTS // (members * classes))
    for start in range(0, samples, size):
        yield slice(start, min(start + size, samples))


def scaled_logits(member_logits: Logits, samples: slice, temperature: float) -> FloatArray:
    """Returns the logits of a range of samples over the temperature, [M,n,C] float64.

    Raises:
        DataError: a logit is NaN or infinite.
    """
    scaled = member_logits[:, samples].astype(np.float64, order="C")
    scaled /= temperature
    if not (np.abs(scaled) <= _LARGEST_LOGIT).all():
        member, sample, label = (int(i[0]) for i in np.nonzero(~(np.abs(scaled) <= _LARGEST_LOGIT)))
        position = sample + samples.start
        raise DataError(
            f"logit of member {member}, sample {position}, class {label} is"
            f" {member_logits[member, position, label]}: expected finite numbers, is the precision too low?"
        )
    return scaled


def member_probabilities(scaled: FloatArray) -> FloatArray:
    """Returns the softmax over classes, [...,C]; uniform logits give exactly 1/C."""
    exponentials: FloatArray = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    exponentials /= exponentials.sum(axis=-1, keepdims=True)
    return exponentials


def entropies(p: FloatArray) -> FloatArray:
    """Returns -p log p of each probability, 0 of 0, in nats."""
    return -p * np.log(np.where(p > 0, p, 1))


def mean_over_members(values: FloatArray) -> FloatArray:
    """Returns the mean over the first axis of [M,...], exactly the common value where all members agree."""
    # A plain sum of equal values over M is off by a rounding, which would give equal members a mutual
    # information above zero and an ensemble of copies another confidence than the network it copies.
    first = values[0]
    if len(values) == 1:
        return np.asarray(first)
    return np.asarray(first + (values[1:] - first).sum(axis=0) / len(values))


def mean_probabilities(member_logits: Logits, temperature: float = 1.0) -> FloatArray:
    """Returns the members' mean softmax probabilities, [N,C] float64.

    Args:
        member_logits: [M,N,C].
        temperature: divides the logits of every member; > 1 softens.

    Source: [HE] 4.2.
    """
    chunks = (scaled_logits(member_logits, samples, temperature) for samples in sample_chunks(member_logits))
    return np.concatenate([mean_over_members(member_probabilities(scaled)) for scaled in chunks])


def label_log_probabilities(scaled: FloatArray, labels: IntArray) -> FloatArray:
    """Returns the logarithm of the mean probability of each sample's label, [n] float64, finite.

    Args:
        scaled: [M,n,C] finite logits.
        labels: [n] in 0..C-1.
    """
    # Relative to the largest logit first: an offset common to all classes would swallow the digits.
    shifted = scaled - scaled.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, labels[None, :, None], axis=-1)[..., 0]
    return log_mean_exp(chosen - np.log(np.exp(shifted).sum(axis=-1)))


def log_doubt(scaled: FloatArray, best: IntArray) -> FloatArray:
    """Returns the logarithm of the mean probability of all classes but each sample's best, [n] float64, finite.

    It ranks as 1 - p does, also where p is 1 to the last digit.

    Args:
        scaled: [M,n,C] finite logits.
        best: [n] in 0..C-1.
    """
    likely = np.take_along_axis(scaled, best[None, :, None], axis=-1)
    others = scaled.copy()
    np.put_along_axis(others, best[None, :, None], -np.inf, axis=-1)
    largest = others.max(axis=-1, keepdims=True)
    rest = largest + np.log(np.exp(others - largest).sum(axis=-1, keepdims=True))
    return log_mean_exp((rest - np.logaddexp(rest, likely))[..., 0])


def log_mean_exp(logarithms: FloatArray) -> FloatArray:
    """Returns the logarithm of the mean over the first axis of exp, [...]."""
    largest = logarithms.max(axis=0)
    # A mean of ratios to the largest, so that one member, or equal members, come out unchanged.
    return np.asarray(largest + np.log(mean_over_members(np.exp(logarithms - largest))), dtype=np.float64)
