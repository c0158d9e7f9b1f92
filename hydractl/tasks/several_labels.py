"""Several labels a sample, each there or not: sigmoids, their losses, and what an answer shows."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from hydractl.metrics.checks import FloatArray, IntArray
from hydractl.tasks.prediction import Prediction
from hydractl.tasks.task import FINE, Judged, TaskRow

THRESHOLD = 0.5  # from which a label is part of the answer, unless calibration found another


def mean_logits(member_logits: Tensor, temperature: float) -> Tensor:
    """Returns log(p / (1 - p)) `[N,C]` of p, the mean of the members' sigmoids, always finite, at least float32.

    Args:
        member_logits: `[M,N,C]`.
    """
    own = member_logits.to(torch.promote_types(member_logits.dtype, torch.float32)) / temperature
    if len(own) == 1:
        return own[0]
    # Of both sides by logarithms, as 1 - p would lose all digits near 1; the number of members cancels.
    return F.logsigmoid(own).logsumexp(0) - F.logsigmoid(-own).logsumexp(0)


def label_set_prediction(
    member_logits: Tensor, temperature: float, classes: Sequence[str] | None, thresholds: Sequence[float] | None = None
) -> Prediction:
    """Returns the prediction for logits `[M,N,C]`; its entropies are those of the set of labels, taken as independent.

    Args:
        temperature: divides the logits of each member.
        classes: names of the C labels. Default: LABEL_0 and so on.
        thresholds: `[C]`, the probability from which a label is in the answer. Default: 0.5.
    """
    logits = mean_logits(member_logits, temperature)
    p = logits.sigmoid()
    least = p.new_full(p.shape[-1:], THRESHOLD) if thresholds is None else p.new_tensor(thresholds)
    chosen = p >= least
    names = tuple(classes or (f"LABEL_{i}" for i in range(p.shape[-1])))
    entropy = _entropy(logits)
    expected = _entropy(member_logits.to(p.dtype) / temperature).mean(0)
    return Prediction(
        classes=names,
        labels=[tuple(name for name, is_in in zip(names, row, strict=True) if is_in) for row in chosen.tolist()],
        probabilities=p,
        msp=_of_answer(logits, chosen),
        entropy=entropy,
        mutual_information=(entropy - expected).clamp(min=0),
        member_logits=member_logits,
    )


def judge_label_sets(members: FloatArray, labels: IntArray | None, _variance: FloatArray | None = None) -> Judged:
    """Returns the F1 of each sample's labels, what ranks as its answer's probability, and the binary cross-entropy.

    The F1 is 1 where there are no labels and none are found.
    """
    logits = mean_logits(torch.from_numpy(members), 1.0)
    chosen = logits.sigmoid() >= THRESHOLD
    surprise = F.softplus(torch.where(chosen, -logits, logits))
    # -log p of each label's answer; where that is tiny, it is the probability of the other one.
    confidence = -torch.where(logits.abs() > 30, -logits.abs(), surprise.log()).logsumexp(-1).numpy()
    if labels is None:
        return Judged(None, confidence, None)
    wanted = torch.from_numpy(labels)
    found, either = (chosen & wanted.bool()).sum(-1).double(), chosen.sum(-1) + wanted.sum(-1)
    f1 = torch.where(either > 0, 2 * found / either.clamp(min=1), 1.0)
    return Judged(f1.numpy(), confidence, binary_losses(logits[None], wanted).numpy())


def _of_answer(logits: Tensor, chosen: Tensor) -> Tensor:
    """Returns the probability `[N]` of sets of labels, taken as independent."""
    return F.logsigmoid(torch.where(chosen, logits, -logits)).sum(-1).exp()


def _entropy(logits: Tensor) -> Tensor:
    """Returns the entropy of labels with logits `[...,C]`, the sum over them, `[...]`, nats."""
    p = logits.sigmoid()
    return -(p * F.logsigmoid(logits) + (1 - p) * F.logsigmoid(-logits)).sum(-1)


def binary_losses(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Returns the binary cross-entropy `[G*B]` of each sample in each copy, the mean over labels.

    Args:
        logits: `[G,B,C]`.
        labels: `[B,C]`, 1 where a label is there.
        smoothing: moves labels towards one half by this share.
    """
    wanted = labels.to(logits.dtype) * (1 - smoothing) + smoothing / 2
    return _losses(logits, wanted).mean(-1).flatten()


def taught_binary_losses(logits: Tensor, taught: Tensor) -> Tensor:
    """Returns the binary cross-entropies to teachers' probabilities `[B,C]`, `[G,B,C]` to be summed."""
    return _losses(logits, taught.to(logits.dtype)) / logits.shape[-1]


def binary_outlier_losses(logits: Tensor) -> Tensor:
    """Returns the binary cross-entropy `[G,B]` to probabilities of one half, for logits `[G,B,C]` of outliers."""
    return _losses(logits, logits.new_full(logits.shape[1:], 0.5)).mean(-1)


def _losses(logits: Tensor, wanted: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, wanted.expand_as(logits), reduction="none")


several_labels = partial(
    TaskRow,
    answer=mean_logits,
    probabilities=torch.sigmoid,
    predict=label_set_prediction,
    losses=binary_losses,
    taught_losses=taught_binary_losses,
    outlier_losses=binary_outlier_losses,
    judge=judge_label_sets,
    measured="F1",
    parts=FINE,
    several=True,
)
