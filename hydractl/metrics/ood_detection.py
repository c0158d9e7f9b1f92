"""Metrics of OOD detection; OOD is the positive class and scores higher."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hydractl.metrics.checks import FloatArray, IntArray, check_scores


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
