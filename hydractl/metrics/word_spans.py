"""Metrics of labelled words: of words alone, and of the spans that they make (entities); resampled by sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hydractl.metrics.bootstrap import draw_places
from hydractl.metrics.calibration import BINS, ClassificationMetrics, binned_gap, equal_mass_bins, equal_width_bins
from hydractl.metrics.checks import BoolArray, FloatArray, IntArray, Logits
from hydractl.metrics.prediction_table import Outcomes, PredictionTable, tabulate
from hydractl.metrics.span_rules import make_spans, span_ranges, span_tags


@dataclass(frozen=True, eq=False)
class SpanTable:
    """The s spans that an ensemble finds in N sentences; one is right if a true one has its kind, start and end."""

    sentences: IntArray  # [s]
    confidence: FloatArray  # [s], the least among the words
    correct: BoolArray  # [s]
    true: IntArray  # [N], how many there are


@dataclass(frozen=True, eq=False)
class WordTable(PredictionTable):
    """Per-sentence quantities of an ensemble that labels words.

    `prediction` and the outcomes' `labels` are `[N,W]`, -1 behind the last word. `msp` is the least among the words,
    `doubt` the largest, `correct` is true where all words are right; all other quantities are means over words.
    """

    words: PredictionTable  # of the n words
    sentences: IntArray  # [n]
    spans: SpanTable | None  # None without labels, or where these make no spans


@dataclass(frozen=True)
class WordMetrics(ClassificationMetrics):
    """Quality of labelled words, and of spans as seqeval counts them; of spans None where labels make none."""

    precision: float | None  # the share of found spans that are right
    recall: float | None  # the share of true spans that are found
    span_f1: float | None
    span_ece: float | None  # of found spans, by the least confidence among their words


def tabulate_words(
    member_logits: Logits,
    labels: IntArray | None,
    temperature: float,
    places: IntArray,
    *,
    names: Sequence[str] | None,
) -> WordTable:
    """Returns the per-sentence quantities of an ensemble's logits.

    Args:
        member_logits: [M,n,C] of n words, those of a sentence one after the other.
        labels: [n], or None.
        temperature: divides the logits of every member.
        places: [n,2], sentence and number of each word; every sentence has one.
        names: of the labels, which tell spans.
    """
    words, sentences = tabulate(member_logits, labels, temperature), places[:, 0]
    counts = np.bincount(sentences)
    starts = np.cumsum(counts) - counts

    def mean(values: FloatArray) -> FloatArray:
        return np.asarray(np.add.reduceat(values, starts) / counts)

    def padded(values: IntArray) -> IntArray:
        rows = np.full((len(counts), counts.max()), -1, dtype=np.int64)
        rows[sentences, np.arange(len(sentences)) - starts[sentences]] = values
        return rows

    known, spans, outcomes = words.outcomes, None, None
    if known is not None:
        right = np.logical_and.reduceat(known.correct, starts)
        outcomes = Outcomes(padded(known.labels), right, nll=mean(known.nll), brier=mean(known.brier))
        if names is not None and make_spans(names):
            spans = find_spans(names, sentences, words.prediction, words.msp, labels=known.labels)
    return WordTable(
        prediction=padded(words.prediction),
        msp=np.minimum.reduceat(words.msp, starts),
        doubt=np.maximum.reduceat(words.doubt, starts),
        entropy=mean(words.entropy),
        expected_entropy=mean(words.expected_entropy),
        disagreement=mean(words.disagreement),
        outcomes=outcomes,
        words=words,
        sentences=sentences,
        spans=spans,
    )


def find_spans(
    names: Sequence[str], sentences: IntArray, predicted: IntArray, confidence: FloatArray, labels: IntArray
) -> SpanTable:
    """Returns the spans of predicted labels `[n]` of words, and which of them are those of the true labels `[n]`."""
    counts, tags = np.bincount(sentences), span_tags(names)
    found, true = [], np.zeros(len(counts), dtype=np.int64)
    for sentence, (end, count) in enumerate(zip(np.cumsum(counts).tolist(), counts.tolist(), strict=True)):
        own = slice(end - count, end)
        theirs, ours = ([names[at] for at in each[own].tolist()] for each in (labels, predicted))
        wanted, sure = set(span_ranges(theirs, tags)), confidence[own]
        true[sentence] = len(wanted)
        found += [(sentence, sure[span[1] : span[2]].min(), span in wanted) for span in span_ranges(ours, tags)]
    rows = [np.array(column) for column in zip(*found, strict=True)] if found else [np.zeros(0)] * 3
    return SpanTable(rows[0].astype(np.int64), rows[1].astype(np.float64), rows[2].astype(bool), true)


def word_metrics(table: WordTable) -> WordMetrics:
    """Returns every number of labelled sentences."""
    return _Measured(table).of(np.ones(len(table.msp), dtype=np.int64))


def word_replicates(table: WordTable, replicates: int = 1000, seed: int = 0) -> dict[str, FloatArray]:
    """Returns resampled values [draws] of the fields of WordMetrics; whole sentences are drawn."""
    measured, size = _Measured(table), len(table.msp)
    drawn = [asdict(measured.of(np.bincount(at, minlength=size))) for [at] in draw_places([size], replicates, seed)]
    known = [name for name, value in drawn[0].items() if value is not None]
    return {name: np.array([one[name] for one in drawn]) for name in known}


class _Measured:
    """Numbers of any of a table's sentences; what does not depend on the sentences is computed once."""

    def __init__(self, table: WordTable) -> None:
        self.table, self.outcomes, confidence = table, table.words.labelled(), table.words.msp
        self.gaps, self.bins = self.outcomes.correct - confidence, equal_width_bins(confidence, BINS)
        self.levels, self.ranks = np.unique(confidence, return_inverse=True)

    def of(self, times: IntArray) -> WordMetrics:
        """Returns the numbers where each sentence counts so many times, `[N]`."""
        weights, outcomes, size = times[self.table.sentences], self.outcomes, self.levels.size
        total = weights.sum()
        counts = np.bincount(self.ranks, weights=weights, minlength=size).astype(np.int64)
        sums = np.asarray(np.bincount(self.ranks, weights=weights * self.gaps, minlength=size), dtype=np.float64)
        return WordMetrics(
            accuracy=float(weights @ outcomes.correct / total),
            brier=float(weights @ outcomes.brier / total),
            nll=float(weights @ outcomes.nll / total),
            ece=binned_gap(self.bins, weights * self.gaps, total),
            adaptive_ece=binned_gap(equal_mass_bins(counts, BINS), sums, total),
            **self._of_spans(times),
        )

    def _of_spans(self, times: IntArray) -> dict[str, Any]:
        spans = self.table.spans
        if spans is None:
            return dict.fromkeys(("precision", "recall", "span_f1", "span_ece"))
        weights = times[spans.sentences]
        right, found, true = (int(each) for each in (weights @ spans.correct, weights.sum(), times @ spans.true))
        gaps = weights * (spans.correct - spans.confidence)
        return {
            "precision": float(right / max(found, 1)),
            "recall": float(right / max(true, 1)),
            "span_f1": float(2 * right / max(found + true, 1)),
            "span_ece": binned_gap(equal_width_bins(spans.confidence, BINS), gaps, max(found, 1)),
        }
