"""Detection by scores: of OOD inputs, which are the positive class and score higher, and of wrong answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from hydractl.metrics.arrays import BoolArray, FloatArray, IntArray, check_scores

COVERAGES = (0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class OodMetrics:
    """Detection of one OOD set against the ID set, all 0..1."""

    auroc: float
    aupr_out: float  # average precision, OOD positive; depends on ood_share
    aupr_in: float  # average precision, ID positive
    fpr95: float  # share of ID flagged when at least 95 % of OOD is; lower is better
    ood_share: float  # of the samples, what a blind detector's aupr_out is


@dataclass(frozen=True, eq=False)
class RocCurve:
    """The share of ID and of OOD samples at or above each threshold, from (0,0) to (1,1)."""

    false_positive_rate: FloatArray
    true_positive_rate: FloatArray


def ood_metrics(id_scores: NDArray[np.floating], ood_scores: NDArray[np.floating]) -> OodMetrics:
    """Returns AUROC (ties one half), step-wise AUPR both ways, and FPR95 of scores [N] and [N'], higher = more OOD.

    Raises:
        DataError: a set is empty or a score is not finite.

    Source: [HE] 5.
    """
    id_counts, ood_counts = count_scores(id_scores, ood_scores)
    return metrics_of_counts(id_counts, ood_counts)


def metrics_of_counts(id_counts: IntArray, ood_counts: IntArray) -> OodMetrics:
    """Returns `ood_metrics` of scores that are counted.

    Args:
        id_counts: [levels] ID samples at each distinct score, ascending; may hold zeros.
        ood_counts: [levels] OOD samples likewise.
    """
    id_total, ood_total = int(id_counts.sum()), int(ood_counts.sum())
    return OodMetrics(
        # In integers up to the one division.
        auroc=ordered_pairs(id_counts, ood_counts) / (2 * id_total * ood_total),
        aupr_out=_average_precision(ood_counts[::-1], id_counts[::-1]),
        aupr_in=_average_precision(id_counts, ood_counts),
        fpr95=_fpr95(id_counts[::-1], ood_counts[::-1]),
        ood_share=ood_total / (id_total + ood_total),
    )


def roc_curve(id_scores: NDArray[np.floating], ood_scores: NDArray[np.floating]) -> RocCurve:
    """Returns the receiver operating characteristic, a point for every distinct score and (0,0)."""
    id_counts, ood_counts = count_scores(id_scores, ood_scores)
    false_positive = np.cumsum(id_counts[::-1]) / id_counts.sum()
    true_positive = np.cumsum(ood_counts[::-1]) / ood_counts.sum()
    return RocCurve(np.insert(false_positive, 0, 0.0), np.insert(true_positive, 0, 0.0))


def count_scores(id_scores: NDArray[np.floating], ood_scores: NDArray[np.floating]) -> tuple[IntArray, IntArray]:
    """Returns how many ID and OOD samples have each distinct score, ascending, both [levels]."""
    levels, id_ranks, ood_ranks = rank_scores(id_scores, ood_scores)
    return np.bincount(id_ranks, minlength=levels), np.bincount(ood_ranks, minlength=levels)


def rank_scores(id_scores: NDArray[np.floating], ood_scores: NDArray[np.floating]) -> tuple[int, IntArray, IntArray]:
    """Returns the number of distinct scores, and the place of each ID and OOD sample's among them, [N] and [N'].

    Raises:
        DataError: a set is empty or a score is not finite.
    """
    id_checked = check_scores(id_scores, "ID score")
    ood_checked = check_scores(ood_scores, "OOD score")
    distinct, ranks = np.unique(np.concatenate([id_checked, ood_checked]), return_inverse=True)
    return distinct.size, ranks[: id_checked.size], ranks[id_checked.size :]


def ordered_pairs(id_counts: IntArray, ood_counts: IntArray) -> int:
    """Returns twice the number of pairs in which the OOD sample scores higher than the ID sample; a tie counts one.

    Args:
        id_counts: [levels] ID samples at each distinct score, ascending; may hold zeros.
        ood_counts: [levels] OOD samples likewise.
    """
    id_below = np.cumsum(id_counts) - id_counts
    return int((ood_counts * (2 * id_below + id_counts)).sum())


def _average_precision(positives: IntArray, negatives: IntArray) -> float:
    """Returns the step-wise average precision, from the counts at each threshold, the strictest first."""
    caught = np.cumsum(positives)
    flagged = caught + np.cumsum(negatives)
    # A resample can leave the strictest thresholds without samples.
    return float((positives * (caught / np.maximum(flagged, 1))).sum() / positives.sum())


def _fpr95(id_counts: IntArray, ood_counts: IntArray) -> float:
    """Returns the FPR95 from the counts at each threshold, the strictest first."""
    kept = np.cumsum(ood_counts)
    # 100 and 95 keep it in integers: 0.95 * N is not exact.
    threshold = int(np.argmax(100 * kept >= 95 * kept[-1]))
    return float(id_counts[: threshold + 1].sum() / id_counts.sum())


@dataclass(frozen=True)
class ErrorMetrics:
    """Metrics of error detection, 0..1; errors are the positive class."""

    misclassification_auroc: float
    misclassification_aupr: float  # average precision; a blind score's is the error rate
    misclassification_fpr95: float  # share of right ones flagged when at least 95 % of errors are; lower is better


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The error rate of the k most confident samples, k = 1..N."""

    coverage: FloatArray  # [N], k / N
    risk: FloatArray  # [N], 0..1


def risk_coverage(confidence: NDArray[np.floating], correct: BoolArray) -> RiskCoverage:
    """Returns the risk-coverage curve; AURC is the mean of its risks.

    Tied samples enter in the mean over all their orders, so the curve depends on no order of the data.

    Args:
        confidence: [N] higher = answered first.
        correct: [N].

    Source: Geifman et al. 2019.
    """
    _, ranks, counts = np.unique(-confidence, return_inverse=True, return_counts=True)
    errors = np.bincount(ranks, weights=~correct)
    answered = np.arange(1, confidence.size + 1)
    ends = np.insert(np.cumsum(counts), 0, 0)
    wrong = np.interp(answered, ends, np.insert(np.cumsum(errors), 0, 0.0))
    return RiskCoverage(coverage=answered / confidence.size, risk=wrong / answered)


def aurc(confidence: NDArray[np.floating], correct: BoolArray) -> float:
    """Returns the area under the risk-coverage curve, 0..1, lower is better."""
    return float(risk_coverage(confidence, correct).risk.mean())


def accuracy_at_coverage(
    confidence: NDArray[np.floating], correct: BoolArray, coverages: Sequence[float] = COVERAGES
) -> dict[float, float]:
    """Returns the accuracy of the most confident share of the samples, for each of some shares in (0,1]."""
    risk = risk_coverage(confidence, correct).risk
    # 0.07 * 100 is a little over 7: the rounding keeps that from answering an eighth sample.
    answered = {share: int(np.ceil(round(share * risk.size, 9))) for share in coverages}
    return {share: float(1.0 - risk[count - 1]) for share, count in answered.items()}


def least_answers(accuracy: float) -> int:
    """Returns how many answers, all of them right, show an accuracy above 0 and below 1 with 95 % certainty.

    >>> least_answers(0.99), least_answers(0.9)
    (299, 29)
    """
    return ceil(round(log(0.05) / log(accuracy), 9))


def design_effects(correct: BoolArray, samples: IntArray) -> FloatArray:
    """Returns by how much the share of wrong answers among the first 1, 2, ... varies more than a binomial's, `[N]`.

    Answers of one sample are alike. The variance is that of a ratio of sums over samples (Kish 1965), 1 at least.

    Args:
        correct: [N].
        samples: [N], the sample of each answer.

    >>> design_effects(np.array([True, True, False, False]), np.array([0, 0, 1, 1])).round(2).tolist()
    [1.0, 1.0, 2.67, 4.0]
    """
    order = np.argsort(samples, kind="stable")
    wrong, starts = (~correct[order]).astype(np.float64), np.r_[True, np.diff(samples[order]) != 0]
    first = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    sums = np.cumsum(wrong)
    before, count = sums - wrong - (sums - wrong)[first], np.arange(len(order)) - first + 1.0
    # What each answer adds to the sums over samples of wrong^2, wrong * count and count^2, and to their number.
    added = np.stack([wrong * (2 * before + 1), before + wrong * count, 2 * count - 1, starts])
    totals = np.empty_like(added)
    totals[:, order] = added
    squares, products, counts, sizes = totals.cumsum(-1)
    answered = np.arange(1, len(order) + 1)
    share = np.cumsum(~correct) / answered
    spread = squares - 2 * share * products + share**2 * counts
    variance = np.maximum(answered * share * (1 - share), 1e-12)
    return np.asarray(np.maximum(sizes / np.maximum(sizes - 1, 1) * spread.clip(min=0) / variance, 1))


def sure_from(
    confidence: FloatArray, correct: BoolArray, accuracy: float, samples: IntArray | None = None
) -> float | None:
    """Returns the lowest confidence from which answers are right as often as wanted; None if there is none.

    Counts a share of right answers by its one-sided 95 % bound (Clopper & Pearson 1934), not as seen on the samples.
    The bound holds for each threshold, not for the lowest that passes. In simulations answers from there on are right
    less often in 4 to 5 % of cases where confidence ranks answers, in 7 to 31 % where it ranks nothing and the accuracy
    lies just below.

    Args:
        confidence: [N].
        correct: [N].
        accuracy: above 0 and below 1.
        samples: [N], the sample of each answer, where samples have several: these count by their design effect.

    >>> sure_from(np.repeat([0.1, 0.9], 100), np.repeat([False, True], 100), 0.97)
    0.9
    """
    from scipy.special import betaincinv

    levels, ranks = np.unique(-confidence, return_inverse=True)
    answered = np.bincount(ranks).cumsum()
    wrong = np.bincount(ranks, weights=~correct).cumsum()
    effects: FloatArray | float = 1.0
    if samples is not None:
        order = np.argsort(-confidence, kind="stable")
        effects = design_effects(correct[order], samples[order])[answered - 1]
    with np.errstate(invalid="ignore"):  # no right answer: a bound of nothing
        bounds = betaincinv((answered - wrong) / effects, wrong / effects + 1, 0.05)
    enough = np.flatnonzero(bounds >= accuracy)
    return float(-levels[enough[-1]]) if enough.size else None


def error_metrics(scores: FloatArray, correct: BoolArray) -> ErrorMetrics | None:
    """Returns AUROC (ties one half), AUPR and FPR95 of a score for errors; None where all are right or all are wrong.

    Args:
        scores: [N] higher = more likely wrong.
        correct: [N].

    Source: Hendrycks & Gimpel 2017.
    """
    if correct.all() or not correct.any():
        return None
    detection = ood_metrics(scores[correct], scores[~correct])
    return ErrorMetrics(detection.auroc, detection.aupr_out, detection.fpr95)
