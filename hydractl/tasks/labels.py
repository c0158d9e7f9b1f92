"""Several labels a sample, each there or not: sigmoids, losses, metrics, thresholds, and what an answer shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.calibration import INTERVAL
from hydractl.checkpoint.spec import TaskName
from hydractl.errors import DataError
from hydractl.metrics.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Logits,
    entropies,
    log_mean_exp,
    mean_over_members,
    sample_chunks,
    scaled_logits,
)
from hydractl.metrics.bootstrap import by_field, draw_places
from hydractl.metrics.classification import (
    BINS,
    ByClass,
    ClassificationMetrics,
    Outcomes,
    PredictionTable,
    binned_gap,
    equal_mass_bins,
    equal_width_bins,
    in_order,
    shares_by_class,
)
from hydractl.metrics.detection import least_answers, metrics_of_counts, sure_from
from hydractl.metrics.scaling import FittedLabels, FittedTemperature, lowest_temperature
from hydractl.tasks.classes import unsureness
from hydractl.tasks.task import FINE, Answers, Judged, Matcher, Names, OneAnswer, Task, Trials, TrueParts, share_of
from hydractl.text import shortened

if TYPE_CHECKING:
    from torch import Tensor

THRESHOLD = 0.5  # from which a label is part of the answer, unless calibration found another


@dataclass(frozen=True)
class Labels(Task):
    """Any number of C labels."""

    name: TaskName
    names: Names

    answers: ClassVar[str] = "labels"
    measured: ClassVar[str] = "F1"
    parts: ClassVar[int] = FINE
    label_type: ClassVar[type | None] = tuple
    promises: ClassVar[tuple[str, ...]] = ("accuracy", "recall")
    by_class: ClassVar[tuple[str, ...]] = ("recall",)
    either: ClassVar[tuple[str, ...]] = ("accuracy", "recall")

    def card(self) -> str:
        return "Sigmoid of its logits is the mean of the members' probabilities;"

    def match(self, matcher: Matcher) -> Any:
        return matcher.label_sets()

    def link(self, member_logits: Tensor, temperature: float) -> Tensor:
        return mean_logits(member_logits, temperature)

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def losses(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Returns the binary cross-entropy `[G*B]`, the mean over labels; smoothing moves labels towards one half."""
        return _binary_losses(logits, labels.to(logits.dtype) * (1 - smoothing) + smoothing / 2).mean(-1).flatten()

    def taught_losses(self, logits: Tensor, taught: Tensor) -> Tensor:
        return _binary_losses(logits, taught.to(logits.dtype)) / logits.shape[-1]

    def outlier_losses(self, logits: Tensor) -> Tensor:
        # The binary cross-entropy to probabilities of one half.
        return _binary_losses(logits, logits.new_full(logits.shape[1:], 0.5)).mean(-1)

    def judge(self, members: FloatArray, labels: Any, variance: FloatArray | None = None) -> Judged:
        """Returns the F1 of each sample's labels, what ranks as its answer's probability, and the binary cross-entropy.

        The F1 is 1 where there are no labels and none are found.
        """
        table = _reduce(members, None if labels is None else labels, np.full(members.shape[-1], THRESHOLD))
        if table.outcomes is None:
            return Judged(None, -table.doubt, None)
        hits = (table.prediction & labels).sum(-1)
        either = table.prediction.sum(-1) + labels.sum(-1)
        f1 = np.where(either > 0, 2 * hits / np.maximum(either, 1), 1.0)
        return Judged(f1, -table.doubt, table.outcomes.nll)

    def table(self, answers: Answers) -> Any:
        calibration = answers.calibration
        return tabulate_label_sets(answers.logits, answers.truth, calibration.divisor, calibration.answered_from)

    def metrics(self, table: Any) -> dict[str, Any]:
        return {name: value for name, value in asdict(label_set_metrics(table)).items() if value == value}

    def replicates(self, table: Any, draws: int, seed: int) -> dict[str, FloatArray]:
        drawn = label_set_replicates(table, draws, seed)
        return {name: values for name, values in drawn.items() if not np.isnan(values).any()}

    def class_numbers(self, table: Any, names: Sequence[str], flags: BoolArray | None) -> ByClass | None:
        there, answered = table.required_outcomes().labels, table.prediction
        sums = {"recall": (there * answered).sum(0), "confidence": (there * table.probabilities).sum(0)}
        sums |= {} if flags is None else {"flagged": flags @ there}
        return shares_by_class(names, there.sum(0), answered.sum(0), sums=sums)

    def choices(self, answers: Answers) -> tuple[BoolArray, int] | None:
        logits, labels = answers.labelled
        return tabulate_label_sets(logits, labels).prediction == labels, 2

    def trials(self, answers: Answers) -> Iterator[Trials]:
        fit = answers.calibration.fit
        if fit is not None and fit.accuracy is not None:
            table, counts = self.table(answers), None if fit.baseline is None else fit.baseline.labels
            for at, name in enumerate(answers.names):
                right = table.outcomes.labels[table.prediction[:, at] == 1, at] == 1
                yield Trials("accuracy", fit.accuracy, right, name, fitted=None if counts is None else counts[at])

    def true_parts(self, answers: Answers) -> TrueParts:
        calibration, there = answers.calibration, np.asarray(answers.truth) == 1
        table = tabulate_label_sets(answers.logits, None, calibration.divisor, calibration.thresholds)
        p, rows, (samples, labels) = table.probabilities, np.arange(len(there)), np.nonzero(there)
        return TrueParts(p, table.prediction == 1, there, rows, right=p[there], samples=samples, labels=labels)

    def fit(self, answers: Answers, interval: float = INTERVAL, precision: float | None = None) -> FittedTemperature:
        return fit_label_sets(*answers.labelled, precision, answers.classes)

    def columns(self, answers: Answers) -> Mapping[str, Any]:
        """Returns answered labels, probabilities `[N,C]`, and MSP, entropy and mutual information `[N]` of the set."""
        calibration, dtype = answers.calibration, answers.logits.dtype
        table = tabulate_label_sets(answers.logits, None, calibration.divisor, calibration.answered_from)
        return {
            "labels": [
                tuple(name for name, there in zip(answers.names, row, strict=True) if there)
                for row in table.prediction.tolist()
            ],
            "probabilities": table.probabilities.astype(dtype),
            "msp": table.msp.astype(dtype),
            "entropy": table.entropy.astype(dtype),
            "mutual_information": table.mutual_information.astype(dtype),
            "sure": None,
            "sets": None,
        }

    def row(self, answers: Answers, at: int) -> dict[str, Any]:
        probabilities = dict(zip(answers.names, answers.probabilities[at].tolist(), strict=True))
        return {"label": answers.labels[at], **unsureness(answers, at), "probabilities": probabilities}

    def read_row(self, row: Mapping[str, Any], classes: Sequence[str] | None) -> OneAnswer:
        return OneAnswer(0.0, share_of(row, "msp"), _listed(row["label"], classes or ()))

    def watch(self, answer: OneAnswer, classes: tuple[str, ...] | None) -> OneAnswer:
        return answer._replace(probabilities=None)

    def watched(self, classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return classes


def mean_logits(member_logits: Tensor, temperature: float) -> Tensor:
    """Returns log(p / (1 - p)) `[N,C]` of p, the mean of the members' sigmoids, always finite, at least float32.

    Args:
        member_logits: `[M,N,C]`.
    """
    import torch
    from torch.nn.functional import logsigmoid

    members = member_logits.to(torch.promote_types(member_logits.dtype, torch.float32)) / temperature
    if len(members) == 1:
        return members[0]
    # Of both sides by logarithms, as 1 - p would lose all digits near 1; the number of members cancels.
    return logsigmoid(members).logsumexp(0) - logsigmoid(-members).logsumexp(0)


def _binary_losses(logits: Tensor, labels: Tensor) -> Tensor:
    from torch.nn.functional import binary_cross_entropy_with_logits

    return binary_cross_entropy_with_logits(logits, labels.expand_as(logits), reduction="none")


def _listed(names: Any, classes: Sequence[str]) -> tuple[str, ...]:
    """Returns labels: those of a list, or of a text, where each may carry its probability."""
    if not isinstance(names, str):
        return tuple(names)
    # A label may hold a comma itself, and CSV puts ' before what a spreadsheet would run.
    pattern = "|".join(map(re.escape, sorted(classes, key=len, reverse=True)))
    listed, labels, at = re.compile(rf"'??({pattern})(?: \d\.\d\d)?(?:, |$)"), list[str](), 0
    while at < len(names):
        if (label := listed.match(names, at)) is None:
            raise ValueError(f"the model has no label {shortened(names[at:], 40)!r}")
        labels.append(label[1])
        at = label.end()
    return tuple(labels)


@dataclass(frozen=True, eq=False)
class LabelSetTable(PredictionTable):
    """Per-sample quantities of an ensemble that answers with several labels.

    `prediction` and the outcomes' `labels` are `[N,C]`, 0 or 1. `msp` is the probability of the answer, its labels
    taken as independent; `correct` is true where every label is right; `nll` and `brier` are means over labels.
    """

    probabilities: FloatArray  # [N,C], the members' mean


@dataclass(frozen=True)
class LabelSetMetrics(ClassificationMetrics):
    """Quality of several labels; accuracy counts samples with every label right, calibration errors are over labels."""

    precision: float  # the share of answered labels that are right, of all labels together
    recall: float  # the share of the labels there that are answered
    micro_f1: float  # of all labels together
    macro_f1: float  # the mean over labels, 0 for a label that is never found
    mean_ap: float  # average precision, the mean over labels that some samples have
    label_auroc: float  # the mean over labels that some samples have and some have not


def tabulate_label_sets(
    member_logits: Logits,
    labels: NDArray[np.integer] | None,
    temperature: float = 1.0,
    thresholds: Sequence[float] | None = None,
) -> LabelSetTable:
    """Returns the per-sample quantities of an ensemble's logits.

    Args:
        member_logits: [M,N,C] float32 or float64.
        labels: [N,C], 0 or 1; None for samples without.
        temperature: divides the logits of every member.
        thresholds: the probability from which a label is in the answer, one for all or [C]. Default: 0.5.
    """
    if labels is not None and labels.shape != member_logits.shape[1:]:
        raise DataError(f"labels of shape {labels.shape}: expected {member_logits.shape[1:]}, one per sample and label")
    least = np.full(member_logits.shape[-1], THRESHOLD) if thresholds is None else np.asarray(thresholds)
    chunks = []
    for samples in sample_chunks(member_logits, least=1):
        scaled = scaled_logits(member_logits, samples, temperature)
        chunks.append(_reduce(scaled, None if labels is None else labels[samples].astype(np.int64), least))
    return in_order(chunks, np.arange(member_logits.shape[1]))


def _reduce(scaled: FloatArray, labels: IntArray | None, least: FloatArray) -> LabelSetTable:
    from scipy.special import expit, log_expit

    members = expit(scaled)
    mean = mean_over_members(members)
    # The logarithms [n,C] of the mean probabilities that labels are there, and that they are not.
    there, absent = (log_mean_exp(log_expit(side)) for side in (scaled, -scaled))
    chosen = mean >= least
    msp = np.exp(np.where(chosen, there, absent).sum(axis=-1))
    return LabelSetTable(
        prediction=chosen.astype(np.int64),
        msp=msp,
        doubt=_log_surprise(there, absent, chosen),
        entropy=_entropy(mean),
        expected_entropy=mean_over_members(_entropy(members)),
        disagreement=_disagreement(members >= least),
        outcomes=None if labels is None else _compare(there, absent, chosen, labels),
        probabilities=mean,
    )


def _log_surprise(there: FloatArray, absent: FloatArray, chosen: BoolArray) -> FloatArray:
    """Returns log(-log p) [n] of the probabilities p of answers, finite also where p is 1 to the last digit."""
    log_p, other = np.where(chosen, there, absent), np.where(chosen, absent, there)
    with np.errstate(divide="ignore"):
        each = np.where(other < -30, other, np.log(-log_p))
    largest = each.max(axis=-1)
    return np.asarray(largest + np.log(np.exp(each - largest[:, None]).sum(axis=-1)))


def _entropy(p: FloatArray) -> FloatArray:
    return np.asarray((entropies(p) + entropies(1 - p)).sum(axis=-1))


def _disagreement(answers: BoolArray) -> FloatArray:
    """Returns the share of pairs of members [M,n,C] with different answers."""
    members = len(answers)
    pairs = [(answers[i] != answers[j]).any(axis=-1) for i in range(members) for j in range(i)]
    return np.mean(pairs, axis=0) if pairs else np.zeros(answers.shape[1])


def _compare(there: FloatArray, absent: FloatArray, chosen: BoolArray, labels: IntArray) -> Outcomes:
    # Subtracted from 0: a unary minus would make the loss of a sure label -0.0.
    nll = 0.0 - np.where(labels == 1, there, absent).mean(axis=-1)
    brier = np.square(np.exp(there) - labels).mean(axis=-1)
    return Outcomes(labels=labels, correct=(chosen == labels).all(axis=-1), nll=nll, brier=brier)


def label_set_metrics(table: LabelSetTable) -> LabelSetMetrics:
    """Returns every number of labelled samples."""
    return _Measured(table).of(np.arange(len(table.msp)))


def label_set_replicates(table: LabelSetTable, replicates: int = 1000, seed: int = 0) -> dict[str, FloatArray]:
    """Returns resampled values [draws] of every field of LabelSetMetrics."""
    measured = _Measured(table)
    drawn = draw_places([len(table.msp)], replicates, seed)
    return by_field(LabelSetMetrics, [measured.of(places) for [places] in drawn])


class _Measured:
    """Numbers of any of a table's samples; what does not depend on the samples is computed once."""

    def __init__(self, table: LabelSetTable) -> None:
        self.outcomes, self.chosen, p = table.required_outcomes(), table.prediction, table.probabilities
        self.gaps, self.bins = self.outcomes.labels - p, equal_width_bins(p, BINS)
        self.levels, ranks = np.unique(p, return_inverse=True)
        self.ranks = ranks.reshape(p.shape)
        self.by_label = [np.unique(column, return_inverse=True)[1] for column in p.T]

    def of(self, places: IntArray) -> LabelSetMetrics:
        """Returns the numbers of the samples at some places, some of them several times."""
        labels, chosen, gaps = self.outcomes.labels[places], self.chosen[places], self.gaps[places].ravel()
        ranks, size = self.ranks[places].ravel(), self.levels.size
        counts = np.bincount(ranks, minlength=size)
        sums = np.asarray(np.bincount(ranks, weights=gaps, minlength=size), dtype=np.float64)
        precision, auroc = self._ranking(places, labels)
        hits, claimed, there = (chosen & labels).sum(axis=0), chosen.sum(axis=0), labels.sum(axis=0)
        return LabelSetMetrics(
            accuracy=float(self.outcomes.correct[places].mean()),
            brier=float(self.outcomes.brier[places].mean()),
            nll=float(self.outcomes.nll[places].mean()),
            ece=binned_gap(self.bins[places].ravel(), gaps, gaps.size),
            adaptive_ece=binned_gap(equal_mass_bins(counts, BINS), sums, gaps.size),
            precision=float(hits.sum() / max(claimed.sum(), 1)),
            recall=float(hits.sum() / max(there.sum(), 1)),
            micro_f1=float(2 * hits.sum() / max(claimed.sum() + there.sum(), 1)),
            macro_f1=float((2 * hits / np.maximum(claimed + there, 1)).mean()),
            mean_ap=precision,
            label_auroc=auroc,
        )

    def _ranking(self, places: IntArray, labels: IntArray) -> tuple[float, float]:
        """Returns mean average precision and mean AUROC over the labels that some samples have and some have not."""
        rated = []
        for column, ranks in zip(labels.T, self.by_label, strict=True):
            if 0 < column.sum() < len(column):
                taken, size = ranks[places], int(ranks.max()) + 1
                counts = (np.bincount(taken[column == value], minlength=size) for value in (0, 1))
                rated.append(metrics_of_counts(*counts))
        if not rated:
            return float("nan"), float("nan")
        return float(np.mean([each.aupr_out for each in rated])), float(np.mean([each.auroc for each in rated]))


def fit_label_sets(
    member_logits: Logits, labels: IntArray, precision: float | None = None, names: Sequence[str] | None = None
) -> FittedLabels:
    """Returns the temperature with the lowest binary NLL, and the threshold of each label with the highest F1 then.

    A label that no sample has keeps the threshold 0.5. `argmax_changed` counts answers that thresholds and temperature
    change.

    Args:
        member_logits: [M,N,C].
        labels: [N,C], 0 or 1.
        precision: the share of a label's answers that should be right; thresholds are the lowest that reach it then.
        names: of the labels, for messages.

    Raises:
        DataError: no threshold of a label shows that precision.
    """

    def nll(temperature: float) -> float:
        return float(tabulate_label_sets(member_logits, labels, temperature).required_outcomes().nll.mean())

    temperature, before, after, at_bound = lowest_temperature(nll)
    p = tabulate_label_sets(member_logits, labels, temperature).probabilities
    columns = zip(p.T, labels.T, strict=True)
    if precision is None:
        thresholds = tuple(_threshold(*column) for column in columns)
    else:
        thresholds = _precise([(scores, truth == 1) for scores, truth in columns], precision, names)
    answers = [tabulate_label_sets(member_logits, labels, *how).prediction for how in ((), (temperature, thresholds))]
    changed = float((answers[0] != answers[1]).any(axis=-1).mean())
    return FittedLabels(temperature, before, after, at_bound=at_bound, argmax_changed=changed, thresholds=thresholds)


def _precise(
    columns: Sequence[tuple[FloatArray, BoolArray]], precision: float, names: Sequence[str] | None
) -> tuple[float, ...]:
    thresholds = [sure_from(*column, precision) for column in columns]
    lacking = [names[at] if names else str(at) for at, least in enumerate(thresholds) if least is None]
    if lacking:
        more = len(lacking) - 1
        others = f" and of {more} other label{'s' * (more != 1)}" if more else ""
        raise DataError(
            f"no threshold makes answers of {lacking[0]!r}{others} right {100 * precision:g} % of the time by its 95 % "
            f"bound: give more calibration data (at least {least_answers(precision)} right answers of each label), "
            "or a lower `accuracy`"
        )
    return tuple(least for least in thresholds if least is not None)


def _threshold(p: FloatArray, labels: IntArray) -> float:
    """Returns the threshold of the highest F1, half-way between the probabilities beside it."""
    if not labels.any():
        return 0.5
    levels, ranks = np.unique(p, return_inverse=True)
    taken = np.bincount(ranks)[::-1].cumsum()[::-1]  # samples from each level on
    hits = np.bincount(ranks, weights=labels)[::-1].cumsum()[::-1]
    best = int(np.argmax(2 * hits / (taken + labels.sum())))
    middle = (levels[max(best - 1, 0)] + levels[best]) / 2
    # Between neighbouring floating-point numbers the middle is one of them, perhaps the lower.
    return float(middle if best and middle > levels[best - 1] else levels[best])
