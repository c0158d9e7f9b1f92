"""The spans that labels of words make, by the scheme of the labels."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from hydractl.text import unnumbered

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
