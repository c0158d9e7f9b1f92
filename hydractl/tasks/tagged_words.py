"""A label a token: words by their first tokens, and the spans of words that belong together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hydractl.metrics.span_rules import span_ranges, span_tags
from hydractl.tasks.one_class import one_class, prediction
from hydractl.tasks.prediction import Prediction
from hydractl.tasks.task import FINE


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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SentencePrediction(Prediction):
    """A model's labels for the words of N sentences.

    Its labels are the spans of each sentence, a tuple of `TaggedSpan`; its probabilities are `[N,W,C]` and its logits
    `[M,N,W,C]`, NaN behind the last word; its `msp` is the least of a sentence's words, its entropies are their means.

    Attributes:
        words: the words of each sentence with their own labels, as `TaggedSpan`.
    """

    words: Sequence[Any] = ()


def of_words(values: Tensor, tokens: Sequence[Sequence[int]], most: int) -> Tensor:
    """Returns the values of words `[M,B,W,C]` from those of tokens `[M,B,T,C]`; NaN behind the last word.

    Args:
        tokens: the first token of each word of each text.
        most: W.
    """
    found = values.new_full((*values.shape[:2], most, values.shape[3]), torch.nan)
    for row, own in enumerate(tokens):
        found[:, row, : len(own)] = values[:, row, list(own)]
    return found


def sentence_prediction(member_logits: Tensor, temperature: float, classes: Sequence[str] | None) -> SentencePrediction:
    """Returns the prediction for sentences, given logits of their words `[M,N,W,C]`; NaN behind the last word.

    Labels are those of the words. The confidence of a sentence is the least of its words'; entropies are their means.
    """
    _, sentences, words, _ = member_logits.shape
    each = prediction(member_logits.flatten(1, 2).nan_to_num(), temperature, classes)
    there = ~member_logits[0, ..., 0].isnan()

    def mean(values: Tensor) -> Tensor:
        return (values.view(sentences, words) * there).sum(1) / there.sum(1)

    labels = [each.labels[row * words : row * words + count] for row, count in enumerate(there.sum(1).tolist())]
    p = each.probabilities.view(sentences, words, -1).masked_fill(~there[..., None], torch.nan)
    return SentencePrediction(
        classes=each.classes,
        labels=[tuple(own) for own in labels],
        probabilities=p,
        msp=each.msp.view(sentences, words).masked_fill(~there, torch.inf).amin(1),
        entropy=mean(each.entropy),
        mutual_information=mean(each.mutual_information),
        member_logits=member_logits,
    )


def with_spans(
    found: SentencePrediction, texts: Sequence[str], places: Sequence[Sequence[tuple[int, int]]], least: float | None
) -> SentencePrediction:
    """Returns the prediction with the words of each sentence, and spans as its labels; sure where all spans are.

    Args:
        places: start and end of each word in its text.
        least: the confidence from which a span is sure.
    """
    words, spans, tags = [], [], span_tags(found.classes)
    for text, own, labels, p in zip(texts, places, found.labels, found.probabilities.amax(-1).tolist(), strict=True):
        words.append(tuple(_span(text, own, p, (label, at, at + 1)) for at, label in enumerate(labels)))
        spans.append(tuple(_span(text, own, p, place) for place in span_ranges(labels, tags)))
    if least is None:
        return replace(found, labels=spans, words=words)
    spans = [tuple(span._replace(sure=span.confidence >= least) for span in own) for own in spans]
    return replace(found, labels=spans, words=words, sure=torch.tensor([all(one.sure for one in own) for own in spans]))


def _span(text: str, places: Sequence[tuple[int, int]], p: Sequence[float], place: tuple[str, int, int]) -> TaggedSpan:
    label, first, end = place
    start, stop = places[first][0], places[end - 1][1]
    return TaggedSpan(label, text[start:stop], start, stop, confidence=min(p[first:end]))


tagged_words = partial(one_class, predict=sentence_prediction, measured="token accuracy", parts=FINE, tagged=True)
