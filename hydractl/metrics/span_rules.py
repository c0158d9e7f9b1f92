"""The spans that labels of words make, by the scheme of the labels."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

NONE = "O"  # the label of words outside of all spans
#: Letters before the kind of a span, as in B-PER: IOB, IOBES (IOE within it), BILOU, and two with M for I.
SCHEMES = ("BI", "BIES", "BILU", "BMES", "BMEW")
LETTERS = frozenset("".join(SCHEMES))
BEGIN, END = frozenset("BSUW"), frozenset("ELSUW")  # of the first word of a span, and of the last one


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
    parts = {
        label: (label[0], label[2:] or "_") for label in labels if label[:1] in LETTERS and label[1:2] in ("", "-")
    }
    if not labels or {*labels} - {NONE} - parts.keys():
        parts = {label: part for label, part in parts.items() if len(label) > 2}
        kinds = [kind for _, kind in parts.values()]
        sure = {letter for letter, kind in parts.values() if kinds.count(kind) > 1}
    else:
        sure = {letter for letter, _ in parts.values()}
    letters = next((set(scheme) for scheme in SCHEMES if sure <= set(scheme)), LETTERS)
    tags = {label: Tag(label) for label in labels} | {NONE: Tag(None)}
    return tags | {
        label: Tag(kind, letter in BEGIN, letter in END) for label, (letter, kind) in parts.items() if letter in letters
    }


def make_spans(tags: Mapping[str, Tag]) -> bool:
    """Returns whether labels are those of a scheme, so that spans of several words are told from each other."""
    return any(tag.kind not in (None, label) for label, tag in tags.items())


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
