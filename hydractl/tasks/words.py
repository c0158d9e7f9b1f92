"""A label a word, by its first token: the spans that words make (entities), metrics, and what an answer shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from hydractl.metrics.arrays import BoolArray, FloatArray, IntArray, Logits, mean_probabilities
from hydractl.metrics.bootstrap import draw_places
from hydractl.metrics.classification import (
    BINS,
    ByClass,
    ClassificationMetrics,
    Outcomes,
    PredictionTable,
    binned_gap,
    equal_mass_bins,
    equal_width_bins,
    tabulate,
)
from hydractl.tasks.classes import Classes, unsureness
from hydractl.tasks.task import FINE, Answers, Claims, Maps, Matcher, OneAnswer, TrueParts
from hydractl.text import unnumbered

if TYPE_CHECKING:
    from torch import Tensor

NONE = "O"  # the label of words outside of all spans
#: Letters before the kind of a span, as in B-PER: IOB, IOBES (IOE within it), BILOU, and two with M for I.
SCHEMES = ("BI", "BIES", "BILU", "BMES", "BMEW")
LETTERS = frozenset("".join(SCHEMES))
BEGIN, END = frozenset("BSUW"), frozenset("ELSUW")  # of the first word of a span, and of the last one


class TaggedSpan(NamedTuple):
    """A word, or the words of a span; `confidence` is the least probability among its words.

    `start` and `end` are its characters in the text. `sure` tells whether spans of its confidence are right as often as
    `calibrate` was asked for; None if it was not.
    """

    label: str
    text: str
    start: int
    end: int
    confidence: float
    sure: bool | None = None

    def __str__(self) -> str:
        return f"{self.text} {self.label} {self.confidence:.2f}"


@dataclass(frozen=True)
class Words(Classes):
    """One of C labels for each word of a text."""

    answers: ClassVar[str] = "labels of words"
    measured: ClassVar[str] = "token accuracy"
    parts: ClassVar[int] = FINE
    tells_ood: ClassVar[Literal["scores", "confidence", "nothing"]] = "confidence"
    label_type: ClassVar[type | None] = None
    promises: ClassVar[tuple[str, ...]] = ("accuracy", "recall")
    by_class: ClassVar[tuple[str, ...]] = ()
    outliers_teach: ClassVar[bool] = False
    fixed: ClassVar[bool] = False
    fewest: ClassVar[int] = 1
    axes: ClassVar[tuple[str, ...]] = ("members", "samples", "tokens", "answers")

    def match(self, matcher: Matcher) -> Any:
        return matcher.tags()

    def read(self, network: Maps, pooled: Tensor, texts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return network.classify(pooled), network.mean_of_tokens(pooled, mask)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean over the words of a batch that have a label."""
        return super().loss(logits[:, labels >= 0], labels[labels >= 0])

    def table(self, answers: Answers) -> PredictionTable:
        if answers.places is None:
            return super().table(answers)
        temperature = answers.calibration.divisor
        return tabulate_words(answers.logits, answers.truth, temperature, answers.places, names=answers.classes)

    def metrics(self, table: Any) -> dict[str, Any]:
        return asdict(word_metrics(table)) if isinstance(table, WordTable) else super().metrics(table)

    def class_numbers(self, table: Any, names: Sequence[str], flags: BoolArray | None) -> ByClass | None:
        if isinstance(table, WordTable):
            table, flags = table.words, None  # it is sentences that look OOD
        return super().class_numbers(table, names, flags)

    def replicates(self, table: Any, draws: int, seed: int) -> dict[str, FloatArray]:
        return word_replicates(table, draws, seed)

    def claims(self, answers: Answers) -> Claims:
        assert answers.places is not None
        p, (_, labels) = answers.mean_p, answers.labelled
        spans = find_spans(answers.names, answers.places[:, 0], p.argmax(-1), p.max(-1), labels=labels)
        return Claims(spans.confidence, spans.correct, np.zeros(len(spans.correct), np.int64), spans.sentences)

    def true_parts(self, answers: Answers) -> TrueParts:
        assert answers.places is not None and answers.truth is not None
        (kinds, of_kind), rows, truth = _kinds(answers.names), answers.places[:, 0], answers.truth
        p, tags, true = mean_probabilities(answers.logits, answers.calibration.divisor), span_tags(answers.names), []
        of_spans = _of_kinds(p, of_kind)
        for end, count in zip(np.bincount(rows).cumsum().tolist(), np.bincount(rows).tolist(), strict=True):
            labels = [answers.names[label] for label in truth[end - count : end].tolist()]
            for kind, first, last in span_ranges(labels, tags):
                number, start = kinds.index(kind), end - count
                true.append((of_spans[start + first : start + last, number].min(), rows[start], number))
        right = np.array([least for least, *_ in true])
        samples, numbers = np.array([rest for _, *rest in true], np.int64).reshape(-1, 2).T
        answered, there = of_kind[p.argmax(-1)], of_kind[truth]
        return TrueParts(of_spans, answered, there, rows, right=right, samples=samples, labels=numbers)

    def columns(self, answers: Answers) -> Mapping[str, Any]:
        """Returns the spans of each sentence as its labels, its words, and the numbers `[N]` of sentences.

        The confidence `msp` of a sentence is the least of its words'; entropies are their means. A sentence is sure
        where all of its spans are. `probabilities` are those of words, `[n,C]`; see `Answers.places`. `offered` are
        the spans of each sentence by the promised recall; None without one.
        """
        assert answers.places is not None
        temperature, dtype, fit = answers.calibration.divisor, answers.logits.dtype, answers.calibration.fit
        table = tabulate_words(answers.logits, None, temperature, answers.places, names=None)
        p = answers.mean_p
        words, spans = _told(answers, table, p.max(-1), None if fit is None else fit.confidence)
        unsure = fit is None or fit.confidence is None
        return {
            "labels": spans,
            "offered": None if (recall := answers.calibration.recall) is None else _offered(answers, recall.least[0]),
            "words": words,
            "probabilities": p,
            "msp": table.msp.astype(dtype),
            "entropy": table.entropy.astype(dtype),
            "mutual_information": table.mutual_information.astype(dtype),
            "sure": None if unsure else np.array([all(span.sure for span in sentence) for sentence in spans]),
            "sets": None,
        }

    def row(self, answers: Answers, at: int) -> dict[str, Any]:
        offered = {} if answers.offered is None else {"offered": _plain(answers.offered[at])}
        spans = {"spans": _plain(answers.labels[at]), **offered}
        return {**spans, **unsureness(answers, at), "words": _plain(answers.words[at])}

    def read_row(self, row: Mapping[str, Any], classes: Sequence[str] | None) -> OneAnswer:
        return OneAnswer(0.0)

    def watch(self, answer: OneAnswer, classes: tuple[str, ...] | None) -> OneAnswer:
        return OneAnswer(answer.typicality, profile=answer.profile)

    def watched(self, classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return ()


def _told(
    answers: Answers, table: WordTable, confidence: Any, least: float | None
) -> tuple[list[tuple[TaggedSpan, ...]], list[tuple[TaggedSpan, ...]]]:
    """Returns the words of each sentence with their own labels, and its spans.

    Args:
        confidence: `[n]` of words.
        least: the confidence from which a span is sure; None where nobody asked.
    """
    words, spans, tags = [], [], span_tags(answers.names)
    best = [answers.names[label] for label in table.words.prediction.tolist()]
    counts = np.bincount(table.sentences)
    for text, places, end, count in zip(answers.texts, answers.spans, counts.cumsum(), counts, strict=True):
        labels, p = best[end - count : end], confidence[end - count : end].tolist()
        words.append(tuple(_span(text, places, p, (label, at, at + 1)) for at, label in enumerate(labels)))
        sentence = [_span(text, places, p, place) for place in span_ranges(labels, tags)]
        if least is not None:
            sentence = [span._replace(sure=span.confidence >= least) for span in sentence]
        spans.append(tuple(sentence))
    return words, spans


def _kinds(names: Sequence[str]) -> tuple[list[str], BoolArray]:
    """Returns the K kinds of spans, and which labels `[C,K]` are of each."""
    tags = span_tags(names)
    kinds = list(dict.fromkeys(tag.kind for tag in tags.values() if tag.kind is not None))
    return kinds, np.array([[tags[name].kind == kind for kind in kinds] for name in names])


def _of_kinds(p: FloatArray, of_kind: BoolArray) -> FloatArray:
    """Returns the probabilities `[n,K]` that words are part of a span of each kind, for those `[n,C]` of labels."""
    return np.asarray(np.stack([p[:, labels].sum(-1) for labels in of_kind.T], -1).clip(max=1))


def _offered(answers: Answers, least: float) -> list[tuple[TaggedSpan, ...]]:
    """Returns for each sentence the longest runs of words that are as probably part of a span of one kind."""
    assert answers.places is not None
    kinds, of_kind = _kinds(answers.names)
    p = _of_kinds(mean_probabilities(answers.logits, answers.calibration.divisor), of_kind)
    ends, offered = np.bincount(answers.places[:, 0]).cumsum()[:-1], []
    for text, places, shares in zip(answers.texts, answers.spans, np.split(p, ends), strict=True):
        spans = []
        for kind, column in zip(kinds, shares.T, strict=True):
            labels, tags = [kind if share >= least else NONE for share in column], {kind: Tag(kind), NONE: Tag(None)}
            spans += [_span(text, places, column.tolist(), place) for place in span_ranges(labels, tags)]
        offered.append(tuple(sorted(spans, key=lambda span: span.start)))
    return offered


def _span(text: str, places: Sequence[tuple[int, int]], p: Sequence[float], place: tuple[str, int, int]) -> TaggedSpan:
    label, first, end = place
    start, stop = places[first][0], places[end - 1][1]
    return TaggedSpan(label, text[start:stop], start, stop, confidence=min(p[first:end]))


def _plain(words: Sequence[TaggedSpan]) -> list[dict[str, Any]]:
    """Returns the words or spans of a text as plain JSON."""
    return [{key: value for key, value in word._asdict().items() if value is not None} for word in words]


class Tag(NamedTuple):
    """A label of words: the kind of span that it is of, None outside of all, and whether one begins or ends there."""

    kind: str | None
    begins: bool = False
    ends: bool = False


def span_tags(labels: Sequence[str]) -> dict[str, Tag]:
    """Returns what each label of a model says of spans, by the first scheme that fits all of them.

    A letter is one of a scheme if another letter has the same kind, or if all labels begin so: S-PER beside B-PER is,
    E-MAIL beside PHONE is not. A label without a letter is a kind itself, as for transformers' pipeline. Letters alone
    have the kind "_", as for seqeval.

    >>> span_tags(["O", "B-PER", "E-PER", "S-LOC"])["S-LOC"]
    Tag(kind='LOC', begins=True, ends=True)
    >>> span_tags(["O", "E-MAIL", "PHONE"])["E-MAIL"]
    Tag(kind='E-MAIL', begins=False, ends=False)
    """
    plain = {label: unnumbered(label, labels) for label in labels}
    prefixes = _prefixes({*plain.values()} - {NONE})
    return {label: _tag(name, prefixes) for label, name in plain.items()}


def _prefixes(names: Set[str]) -> Set[str]:
    """Returns what stands before kinds: "B-" and others, or letters alone where no name is more."""
    tags = {name for name in names if name[:1] in LETTERS and name[1:2] in ("", "-")}
    if names - tags:
        kinds = Counter(name[2:] for name in tags)
        tags = {name for name in tags if name[2:] and kinds[name[2:]] > 1}
    letters = next((scheme for scheme in SCHEMES if {tag[0] for tag in tags} <= {*scheme}), LETTERS)
    return {f"{letter}-" for letter in letters} | {tag for tag in tags if len(tag) == 1}


def _tag(name: str, prefixes: Set[str]) -> Tag:
    if name[:2] not in prefixes:
        return Tag(None if name == NONE else name)
    return Tag(name[2:] or "_", name[0] in BEGIN, name[0] in END)


def make_spans(labels: Sequence[str]) -> bool:
    """Returns whether labels are those of a scheme, so that spans of several words are told from each other."""
    prefixes = _prefixes({*labels} - {NONE})
    return any(label[:2] in prefixes for label in labels)


def span_ranges(labels: Sequence[str], tags: Mapping[str, Tag]) -> list[tuple[str, int, int]]:
    """Returns kind, first word and the word behind the last of each span in a sentence.

    A span goes on while the kind stays, until a label ends it or begins another. Labels that no scheme puts side by
    side are read as seqeval reads them by default, and transformers' pipeline: an I without a B begins a span.

    >>> labels = ["B-PER", "I-PER", "B-PER", "O", "I-LOC"]
    >>> span_ranges(labels, span_tags(labels))
    [('PER', 0, 2), ('PER', 2, 3), ('LOC', 4, 5)]
    """
    spans: list[tuple[str, int, int]] = []
    before = Tag(None)
    for at, label in enumerate(labels):
        tag = tags[label]
        if tag.kind is not None:
            goes_on = tag.kind == before.kind and not before.ends and not tag.begins
            spans.append((tag.kind, spans.pop()[1] if goes_on else at, at + 1))
        before = tag
    return spans


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
    member_logits: Logits, labels: IntArray | None, temperature: float, places: IntArray, *, names: Sequence[str] | None
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

    judged, spans, outcomes = words.outcomes, None, None
    if judged is not None:
        right = np.logical_and.reduceat(judged.correct, starts)
        outcomes = Outcomes(padded(judged.labels), right, nll=mean(judged.nll), brier=mean(judged.brier))
        if names is not None and make_spans(names):
            spans = find_spans(names, sentences, words.prediction, words.msp, labels=judged.labels)
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
    spans, true = [], np.zeros(len(counts), dtype=np.int64)
    for sentence, (end, count) in enumerate(zip(np.cumsum(counts).tolist(), counts.tolist(), strict=True)):
        place = slice(end - count, end)
        theirs, ours = ([names[at] for at in each[place].tolist()] for each in (labels, predicted))
        expected, sure = set(span_ranges(theirs, tags)), confidence[place]
        true[sentence] = len(expected)
        spans += [(sentence, sure[span[1] : span[2]].min(), span in expected) for span in span_ranges(ours, tags)]
    rows = [np.array(column) for column in zip(*spans, strict=True)] if spans else [np.zeros(0)] * 3
    return SpanTable(rows[0].astype(np.int64), rows[1].astype(np.float64), rows[2].astype(bool), true)


def word_metrics(table: WordTable) -> WordMetrics:
    """Returns every number of labelled sentences."""
    return _Measured(table).of(np.ones(len(table.msp), dtype=np.int64))


def word_replicates(table: WordTable, replicates: int = 1000, seed: int = 0) -> dict[str, FloatArray]:
    """Returns resampled values [draws] of the fields of WordMetrics; whole sentences are drawn."""
    measured, size = _Measured(table), len(table.msp)
    drawn = [asdict(measured.of(np.bincount(at, minlength=size))) for [at] in draw_places([size], replicates, seed)]
    names = [name for name, value in drawn[0].items() if value is not None]
    return {name: np.array([draw[name] for draw in drawn]) for name in names}


class _Measured:
    """Numbers of any of a table's sentences; what does not depend on the sentences is computed once."""

    def __init__(self, table: WordTable) -> None:
        self.table, self.outcomes, confidence = table, table.words.required_outcomes(), table.words.msp
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
        right, predicted, true = (int(each) for each in (weights @ spans.correct, weights.sum(), times @ spans.true))
        gaps = weights * (spans.correct - spans.confidence)
        return {
            "precision": float(right / max(predicted, 1)),
            "recall": float(right / max(true, 1)),
            "span_f1": float(2 * right / max(predicted + true, 1)),
            "span_ece": binned_gap(equal_width_bins(spans.confidence, BINS), gaps, max(predicted, 1)),
        }
