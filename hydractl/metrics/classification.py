"""Quality of classification: the per-sample quantities of an ensemble, accuracy, and calibration."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hydractl.errors import DataError
from hydractl.metrics.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Logits,
    check_labels,
    entropies,
    label_log_probabilities,
    log_doubt,
    mean_over_members,
    member_probabilities,
    sample_chunks,
    scaled_logits,
)
from hydractl.schema import Checked

T = TypeVar("T")
_Count = Annotated[int, Checked(ge=0)]
_Share = Annotated[float, Checked(ge=0, le=1)]
BINS = 15  # of confidence, for both calibration errors


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Outcomes of the predictions by their labels; all [N]."""

    labels: IntArray
    correct: BoolArray
    nll: FloatArray  # -log of the mean probability of the label, nats, finite
    brier: FloatArray  # sum over classes of (p - y)^2, 0..2


@dataclass(frozen=True, eq=False)
class PredictionTable:
    """Per-sample quantities of an ensemble of M >= 1 members; all [N], entropies in nats."""

    prediction: IntArray  # argmax of the mean probability, the first among equals
    msp: FloatArray  # its probability
    doubt: FloatArray  # what ranks as 1 - msp, also where that is 0 to the last digit: log(1 - msp) of classes
    entropy: FloatArray  # of the mean probability
    expected_entropy: FloatArray  # mean of the members' entropies
    disagreement: FloatArray  # share of member pairs with different argmax; 0 for one member
    outcomes: Outcomes | None

    @property
    def mutual_information(self) -> FloatArray:
        """Entropy of the mean less the mean entropy of the members, nats, never below 0, [N]."""
        return np.maximum(self.entropy - self.expected_entropy, 0.0)

    def required_outcomes(self) -> Outcomes:
        """Returns the outcomes."""
        if self.outcomes is None:
            raise DataError("accuracy and calibration need labels: give labelled samples")
        return self.outcomes


def tabulate(
    member_logits: Logits, labels: NDArray[np.integer] | None = None, temperature: float = 1.0
) -> PredictionTable:
    """Returns the per-sample quantities of an ensemble's logits, the same bits however the samples are split.

    Args:
        member_logits: [M,N,C] float32 or float64.
        labels: [N] integers in 0..C-1, or None for samples without, as OOD ones.
        temperature: divides the logits of every member; > 1 softens.
    """
    checked = None if labels is None else check_labels(member_logits, labels)
    chunks = []
    for samples in sample_chunks(member_logits):
        scaled = scaled_logits(member_logits, samples, temperature)
        chunks.append(_reduce(scaled, None if checked is None else checked[samples]))
    return in_order(chunks, np.arange(member_logits.shape[1]))


def in_order(parts: Sequence[T], positions: NDArray[np.integer]) -> T:
    """Returns results of a set's batches as one, with the samples in the order of the set.

    Args:
        parts: dataclasses of one form, such as tables, whose fields are arrays of samples, None or such dataclasses.
        positions: [N] where each sample stands in the set, each place once.
    """
    order = np.argsort(positions)

    def joined(columns: Sequence[Any]) -> Any:
        if columns[0] is None:
            return None
        if is_dataclass(kind := type(columns[0])):
            return kind(*(joined([getattr(part, field.name) for part in columns]) for field in fields(kind)))
        return np.concatenate(columns)[order]

    return joined(parts)


def _reduce(scaled: FloatArray, labels: IntArray | None) -> PredictionTable:
    members = member_probabilities(scaled)
    mean = mean_over_members(members)
    prediction = mean.argmax(axis=-1)
    return PredictionTable(
        prediction=prediction,
        msp=mean.max(axis=-1),
        doubt=log_doubt(scaled, prediction),
        entropy=entropies(mean).sum(axis=-1),
        expected_entropy=mean_over_members(entropies(members).sum(axis=-1)),
        disagreement=_disagreement(scaled.argmax(axis=-1)),
        outcomes=None if labels is None else _compare(scaled, mean, prediction, labels),
    )


def _compare(scaled: FloatArray, mean: FloatArray, prediction: IntArray, labels: IntArray) -> Outcomes:
    error = mean.copy()
    error[np.arange(len(labels)), labels] -= 1.0
    # Subtracted from 0: a unary minus would make the loss of a sure label -0.0.
    nll = 0.0 - label_log_probabilities(scaled, labels)
    return Outcomes(labels=labels, correct=prediction == labels, nll=nll, brier=np.square(error).sum(axis=-1))


def _disagreement(member_predictions: IntArray) -> FloatArray:
    members, samples = member_predictions.shape
    if members == 1:
        return np.zeros(samples)
    different = np.zeros(samples, dtype=np.int64)
    for first in range(members):
        different += (member_predictions[first + 1 :] != member_predictions[first]).sum(axis=0)
    return np.asarray(different / (members * (members - 1) // 2), dtype=np.float64)


def is_chance(right: int, samples: int, classes: int) -> bool:
    """Returns whether guesses are right as often with a probability above 5 %; see `too_few_right`.

    >>> is_chance(10, 100, 10), is_chance(20, 100, 10)
    (True, False)
    """
    from scipy.special import bdtrc

    return bool(bdtrc(right - 1, samples, 1 / classes) > 0.05)


def too_few_right(right: int, samples: int, classes: int) -> bool:
    """Returns whether a network that is right half-way between guesses and always would hardly have so few right.

    Hardly means with a probability below 1e-4, so that a few samples never speak against a good network.

    >>> too_few_right(10, 100, 10), too_few_right(1, 3, 10), too_few_right(0, 20, 2)
    (True, False, True)
    """
    from scipy.special import bdtr

    return bool(bdtr(right, samples, (1 + 1 / classes) / 2) < 1e-4)


@dataclass(frozen=True)
class ClassNumbers:
    """The answers to the samples of one class, label or tag; a share of no samples is None."""

    samples: _Count  # with this label
    recall: _Share | None = None  # share of them that are answered with it
    precision: _Share | None = None  # share of the answers with it that are right
    confidence: _Share | None = None  # mean probability of their answers; of several labels, of this label
    flagged: _Share | None = None  # share of them that look OOD to the file's own score; None without one
    answers: Mapping[str, _Count] | None = None  # how often each class is their answer; None of several labels


ByClass = Mapping[str, ClassNumbers]  #: by the name of the class, label or tag


def numbers_of_classes(table: PredictionTable, names: Sequence[str], flags: BoolArray | None) -> ByClass:
    """Returns the numbers of each class that is a label or an answer, by name.

    Args:
        names: [C].
        flags: [N], whether each sample looks OOD; None if nothing tells.
    """
    labels, size = table.required_outcomes().labels, len(names)
    answers: dict[int, dict[str, int]] = defaultdict(dict)
    pairs, counts = np.unique(labels * size + table.prediction, return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        answers[pair // size][names[pair % size]] = count

    def total(of: Any) -> NDArray[Any]:
        return np.bincount(labels, of, size)

    sums = {"recall": total(table.prediction == labels), "confidence": total(table.msp)}
    sums |= {} if flags is None else {"flagged": total(flags)}
    samples, answered = (np.bincount(classes, minlength=size) for classes in (labels, table.prediction))
    return shares_by_class(names, samples, answered, sums=sums, answers=answers)


def shares_by_class(
    names: Sequence[str],
    samples: IntArray,
    answered: IntArray,
    *,
    sums: Mapping[str, NDArray[Any]],
    answers: Mapping[int, Mapping[str, int]] | None = None,
) -> ByClass:
    """Returns the numbers of each class that is a label or an answer, by name.

    Args:
        names: [C].
        samples, answered: [C], how often each class is the label, and how often it is answered.
        sums: [C] over the samples of each class, of what `recall` and others are means of.
        answers: how often each class is answered, for those of each class by its number.
    """

    def share(total: float, count: int) -> float | None:
        return float(total / count) if count else None

    return {
        names[at]: ClassNumbers(
            int(samples[at]),
            precision=share(sums["recall"][at], answered[at]),
            answers=None if answers is None else answers.get(at, {}),
            **{name: share(values[at], samples[at]) for name, values in sums.items()},
        )
        for at in np.flatnonzero(samples + answered).tolist()
    }


@dataclass(frozen=True)
class ClassificationMetrics:
    """Quality of classification on labelled samples; all but accuracy are better when lower.

    Both calibration errors are of the top label, L1, 0..1. Bins of the first are of equal width and closed on the
    right, bins of the second hold equally many samples; ties share a bin.

    Source: Naeini et al. 2015, Guo et al. 2017 (ECE); Nixon et al. 2019 (adaptive ECE).
    """

    accuracy: float
    brier: float
    nll: float  # nats
    ece: float
    adaptive_ece: float


@dataclass(frozen=True, eq=False)
class ReliabilityDiagram:
    """The contents of each bin of confidences; means are NaN in an empty bin."""

    edges: FloatArray  # [bins + 1], the bin's confidences lie in (left, right]
    counts: IntArray  # [bins]
    confidence: FloatArray  # [bins], mean
    accuracy: FloatArray  # [bins]


def classification_metrics(table: PredictionTable, bins: int = BINS) -> ClassificationMetrics:
    """Returns every number of labelled samples."""
    return metrics_of_places(table, bins)(np.arange(table.msp.size))


def metrics_of_places(table: PredictionTable, bins: int = BINS) -> Callable[[IntArray], ClassificationMetrics]:
    """Returns the metrics of N samples at some places, some of them several times."""
    outcomes, samples = table.required_outcomes(), table.msp.size
    gaps, bin_of = outcomes.correct - table.msp, equal_width_bins(table.msp, bins)
    distinct, ranks = np.unique(table.msp, return_inverse=True)

    def of(places: IntArray) -> ClassificationMetrics:
        gap, rank = gaps[places], ranks[places]
        counts = np.bincount(rank, minlength=distinct.size)
        gap_sums = np.asarray(np.bincount(rank, weights=gap, minlength=distinct.size), dtype=np.float64)
        return ClassificationMetrics(
            accuracy=float(outcomes.correct[places].mean()),
            brier=float(outcomes.brier[places].mean()),
            nll=float(outcomes.nll[places].mean()),
            ece=binned_gap(bin_of[places], gap, samples),
            adaptive_ece=binned_gap(equal_mass_bins(counts, bins), gap_sums, samples),
        )

    return of


def reliability_diagram(confidence: FloatArray, correct: BoolArray, bins: int = BINS) -> ReliabilityDiagram:
    """Returns the count, mean confidence and accuracy of each of the ECE's bins, of samples [N]."""
    which = equal_width_bins(confidence, bins)
    counts = np.bincount(which, minlength=bins)
    divisor = np.where(counts > 0, counts, np.nan)
    return ReliabilityDiagram(
        edges=bin_edges(bins),
        counts=counts,
        confidence=np.bincount(which, weights=confidence, minlength=bins) / divisor,
        accuracy=np.bincount(which, weights=correct, minlength=bins) / divisor,
    )


def bin_edges(bins: int) -> FloatArray:
    """Returns the edges of equal-width bins on (0,1], [bins + 1]."""
    # Each edge is the float nearest to k / bins, which is also what a confidence written 0.2 is.
    return np.arange(bins + 1) / bins


def equal_width_bins(confidence: FloatArray, bins: int) -> IntArray:
    """Returns the bin of each confidence, [N] in 0..bins-1; an edge belongs to the bin on its left, 0 to the first."""
    return np.maximum(np.searchsorted(bin_edges(bins), confidence, side="left") - 1, 0)


def equal_mass_bins(counts: IntArray, bins: int) -> IntArray:
    """Returns the bin of each distinct confidence, [levels] in 0..bins-1, so that bins hold equally many samples.

    Without ties the bins are those of `numpy.array_split`; a tie across an edge falls whole to the left.

    Args:
        counts: [levels] samples at each distinct confidence, ascending; may hold zeros.
    """
    size, larger = divmod(int(counts.sum()), bins)
    starts = np.arange(bins) * size + np.minimum(np.arange(bins), larger)
    return np.searchsorted(starts, np.cumsum(counts) - counts, side="right") - 1


def binned_gap(which: IntArray, gaps: FloatArray, samples: int) -> float:
    """Returns the sum over bins of |summed gap between correctness and confidence| over the number of samples.

    Args:
        which: [entries] the bin of each.
        gaps: [entries] correct - confidence of one sample, or summed over several.
        samples: N.
    """
    return float(np.abs(np.bincount(which, weights=gaps)).sum() / samples)
