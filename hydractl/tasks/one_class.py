"""One class a sample: softmax, its losses, and what an answer shows."""

from collections.abc import Sequence
from functools import partial
from math import log

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hydractl.metrics.checks import FloatArray, IntArray
from hydractl.metrics.probabilities import (
    label_log_probabilities,
    log_doubt,
    mean_over_members,
    member_probabilities,
)
from hydractl.tasks.prediction import Prediction
from hydractl.tasks.task import Judged, TaskRow


def prediction(
    member_logits: Tensor, temperature: float, classes: Sequence[str] | None, least: Sequence[float] | None = None
) -> Prediction:
    """Returns the prediction for logits `[M,N,C]`.

    Args:
        temperature: divides the logits of each member.
        classes: names of the C classes. Default: LABEL_0 and so on.
        least: the probability from which a class is in the set, one for all or `[C]`. Default: no sets.
    """
    probabilities = log_probabilities(member_logits, temperature).exp()
    msp, best = probabilities.max(-1)
    entropy = torch.special.entr(probabilities).sum(-1)
    expected = torch.special.entr((member_logits / temperature).softmax(-1)).sum(-1).mean(0)
    names = tuple(classes or (f"LABEL_{i}" for i in range(probabilities.shape[-1])))
    labels = [names[i] for i in best.tolist()]
    return Prediction(
        classes=names,
        labels=labels,
        probabilities=probabilities,
        msp=msp,
        entropy=entropy,
        mutual_information=(entropy - expected).clamp(min=0),
        member_logits=member_logits,
        sets=None if least is None else class_sets(probabilities, least),
    )


def class_sets(probabilities: Tensor, least: Sequence[float]) -> Tensor:
    """Returns which classes are in each set, `[N,C]`: those from the least probability on, and the most probable one.

    Args:
        probabilities: `[N,C]`.
        least: one for all classes, or `[C]`.
    """
    best = probabilities.amax(-1, keepdim=True)  # an empty set would help nobody
    return (probabilities >= probabilities.new_tensor(least)) | (probabilities == best)


def log_probabilities(member_logits: Tensor, temperature: float) -> Tensor:
    """Returns the logarithm `[N,C]` of the mean of the members' softmax probabilities, always finite, at least float32.

    Args:
        member_logits: `[M,N,C]`.
    """
    wide = member_logits.to(torch.promote_types(member_logits.dtype, torch.float32))
    own = (wide / temperature).log_softmax(-1)
    return own[0] if len(own) == 1 else own.logsumexp(0) - log(len(own))


def losses(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Returns the cross-entropy `[G*B]` of each sample in each copy.

    Args:
        logits: `[G,B,C]`.
        labels: `[B]`.
        smoothing: the share of a label that goes to all classes.
    """
    labels = labels.expand(len(logits), -1).flatten()
    return F.cross_entropy(logits.flatten(0, 1), labels, reduction="none", label_smoothing=smoothing)


def taught_losses(logits: Tensor, taught: Tensor) -> Tensor:
    """Returns the cross-entropies to teachers' probabilities `[B,C]`, `[G,B,C]` to be summed."""
    return -(taught.to(logits.dtype) * logits.log_softmax(-1))


def outlier_losses(logits: Tensor) -> Tensor:
    """Returns the cross-entropy `[G,B]` to a uniform distribution, for logits `[G,B,C]` of outliers."""
    return -logits.log_softmax(-1).mean(-1)


def judge(members: FloatArray, labels: IntArray | None, _variance: FloatArray | None = None) -> Judged:
    """Returns whether the most probable class is right, -log(1 - p) of its p, and the negative log-likelihood in nats.

    The confidence ranks samples as p does, and those whose p is 1 to the last digit.
    """
    best = mean_over_members(member_probabilities(members)).argmax(-1)
    confidence = -log_doubt(members, best)
    if labels is None:
        return Judged(None, confidence, None)
    return Judged((best == labels).astype(np.float64), confidence, -label_log_probabilities(members, labels))


one_class = partial(
    TaskRow,
    answer=log_probabilities,
    probabilities=torch.exp,
    predict=prediction,
    losses=losses,
    taught_losses=taught_losses,
    outlier_losses=outlier_losses,
    judge=judge,
)
