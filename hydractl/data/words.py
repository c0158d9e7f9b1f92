"""Sentences that are split into words, the tags of the words, and the tokens at which words start."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hydractl.data.files import decode_text, read_bytes
from hydractl.errors import DataError
from hydractl.text import composed, composed_all, nearest, told_apart

if TYPE_CHECKING:
    import datasets
    from torch import Tensor

    from hydractl.data.samples import Labels, Samples

UNTAGGED = -100  # as transformers marks what has no label


class Words(str):
    """A sentence whose words are known; as a text, its words with blanks between."""

    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, words: Sequence[str]) -> Words:
        """Returns the sentence of some words."""
        sentence = cls(" ".join(words))
        sentence.words = tuple(words)
        return sentence

    @property
    def places(self) -> list[tuple[int, int]]:
        """Start and end of each word in the text."""
        starts = accumulate((len(word) + 1 for word in self.words), initial=0)
        return [(start, start + len(word)) for start, word in zip(starts, self.words, strict=False)]


class WordPlace(NamedTuple):
    """The place of a word: its number and its first token in the sentence, and its characters in the text."""

    number: int
    token: int
    start: int
    end: int


def word_places(text: str, encoding: Any, tokenizer: Any) -> list[WordPlace]:
    """Returns the words of a text that have a token, in order; a text of none counts as one word.

    Words of a plain text are those of transformers' pipeline.

    Args:
        encoding: of the text, by `tokenizers`.
    """
    masked = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
    pieces = [(token, *place) for token, (place, special) in enumerate(masked) if not special]
    if isinstance(text, Words):
        return _given_words(text.places, pieces)
    words: list[WordPlace] = []
    prefix = getattr(tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None)
    for token, start, end in pieces:
        continues = start > 0 and " " not in text[start - 1 : start + 1]
        if prefix:
            continues = len(encoding.tokens[token]) != end - start
        if words and continues and encoding.ids[token] != tokenizer.unk_token_id:
            words[-1] = words[-1]._replace(end=end)
        else:
            words.append(WordPlace(len(words), token, start, end))
    return words or [WordPlace(0, 0, 0, len(text))]


def _given_words(places: Sequence[tuple[int, int]], pieces: Sequence[tuple[int, int, int]]) -> list[WordPlace]:
    first: dict[int, int] = {}
    number = 0
    for token, start, end in pieces:
        while number < len(places) and places[number][1] <= start:
            number += 1
        # A piece of some tokenizers begins with the blank before its word.
        if number < len(places) and end > places[number][0]:
            first.setdefault(number, token)
    return [WordPlace(number, token, *places[number]) for number, token in first.items()]


def first_tokens(places: Sequence[Sequence[WordPlace]]) -> Tensor:
    """Returns the text, the first token and the number of each word of some texts, `[n,3]`."""
    import torch

    rows = [(row, word.token, word.number) for row, words in enumerate(places) for word in words]
    return torch.tensor(rows, dtype=torch.long).view(-1, 3)


def read_words(table: datasets.Dataset, column: str) -> list[Words]:
    """Returns the sentences in a column of lists; a missing list is an empty sentence."""
    rows: list[Any] = table.select_columns([column]).with_format("arrow")[:][column].to_pylist()
    return [Words.of([word or "" for word in words or ()]) for words in rows]


def read_tags(
    table: datasets.Dataset, column: str, sentences: Sequence[Words]
) -> tuple[Labels, tuple[str, ...] | None] | str:
    """Returns the tags `[N,W]` of words and their names, or a text that explains why there are none.

    What is beyond the end of a sentence is -100. Names are numbered in sorted order; None for bare numbers.
    """
    inner = getattr(table.features[column], "feature", None)
    rows: list[Any] = table.select_columns([column]).with_format("arrow")[:][column].to_pylist()
    rows = [tags and [composed(tag) if isinstance(tag, str) else tag for tag in tags] for tags in rows]
    for at, (tags, sentence) in enumerate(zip(rows, sentences, strict=True)):
        if (count := len(tags or ())) != len(sentence.words):
            return f"row {at} has {len(sentence.words)} words and {count} tags in column {column}"
    names = getattr(inner, "names", None)
    flat = [(at, number, tag) for at, tags in enumerate(rows) for number, tag in enumerate(tags)]
    kind = str if any(isinstance(tag, str) for *_, tag in flat) else int
    if odd := [(at, tag) for at, _, tag in flat if type(tag) is not kind]:
        return f"row {odd[0][0]} of column {column} holds {odd[0][1]!r}: give names alone, or whole numbers alone"
    if below := [(at, tag) for at, _, tag in flat if kind is int and tag < 0 and tag != UNTAGGED]:
        return f"row {below[0][0]} of column {column} holds {below[0][1]}: give tags from 0, or {UNTAGGED} for none"
    if bare := [(at, number) for at, number, tag in flat if tag == ""]:
        at, number = bare[0]
        return f"row {at}, word {number} ({sentences[at].words[number]}) has no tag: write {UNTAGGED}, or a tag"
    if kind is str:
        flat = [row for row in flat if row[2] != str(UNTAGGED)]
        names = sorted({tag for *_, tag in flat})
    numbers = {name: number for number, name in enumerate(names or ())} if kind is str else None
    labels = np.full((len(rows), max(map(len, rows), default=0)), UNTAGGED, dtype=np.int64)
    for at, number, tag in flat:
        labels[at, number] = tag if numbers is None else numbers[tag]
    return labels, composed_all(names)


def conll_columns(file: str) -> list[str]:
    """Returns names for the columns of a CoNLL file: words are first, the tags that count are last."""
    lines = decode_text(read_bytes(Path(file), "name a file"), file, "one word and its tags per line").splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith("-DOCSTART-")), "")
    between = (f"column{number}" for number in range(1, len(first.split()) - 1))
    return ["tokens", *between, "tags"][: max(len(first.split()), 1)]


def require_tags(samples: Samples, allowed: Sequence[str]) -> None:
    """Raises DataError for a sentence without a tag, or a tag that is none of the `allowed` names."""
    labels, names = samples.labels, samples.label_names or ()
    assert labels is not None
    if len(bare := np.flatnonzero((labels < 0).all(axis=1))):
        raise DataError(f"{samples.name}: row {bare[0]} has no tagged word: remove it")
    strange = [number for number, name in enumerate(names) if name not in allowed]
    if len(unknown := np.argwhere(np.isin(labels, strange))):
        (row, word), tag = unknown[0], names[labels[tuple(unknown[0])]]
        near = nearest(tag, allowed)
        meant = "" if near is None else f" (did you mean {told_apart(tag, near)}?)"
        raise DataError(
            f"{samples.name}: row {row}, word {word}: tag {tag} is not one of the model's: {', '.join(allowed[:12])}: "
            f"rename it{meant}, or train a new classifier"
        )
