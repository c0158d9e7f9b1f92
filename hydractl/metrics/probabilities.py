"""From member logits to probabilities, in float64 and in chunks of samples that bound the memory."""

from collections.abc import Iterator

import numpy as np

from hydractl.errors import DataError
from hydractl.metrics.checks import FloatArray, IntArray, Logits, check_member_logits

# Member logits held in float64 at once: 16 MiB, a few times that with the temporaries.
_CHUNK_ELEMENTS = 2**21
# Beyond any float32 logit over any sensible temperature, far below where differences overflow float64.
_LARGEST_LOGIT = 1e100


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
