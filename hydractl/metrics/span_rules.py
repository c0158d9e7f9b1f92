"""The spans that labels of words make, as transformers' pipeline and seqeval read them."""

from collections.abc import Sequence

NONE = "O"  # the label of words outside of all spans
BEGIN = "B-"


def span_kind(label: str) -> str:
    """Returns the kind of span that a label is of, as transformers' pipeline reads it."""
    return label[2:] if label[:2] in (BEGIN, "I-") else label


def span_ranges(labels: Sequence[str]) -> list[tuple[str, int, int]]:
    """Returns kind, first word and the word behind the last of each span in a sentence.

    A span goes on while the kind stays and no label begins another (IOB2; an I without a B begins a span, too, as for
    seqeval and transformers' pipeline).

    >>> span_ranges(["B-PER", "I-PER", "B-PER", "O", "I-LOC"])
    [('PER', 0, 2), ('PER', 2, 3), ('LOC', 4, 5)]
    """
    found: list[tuple[str, int, int]] = []
    for at, label in enumerate(labels):
        kind = span_kind(label)
        if label == NONE:
            continue
        if found and found[-1][2] == at and found[-1][0] == kind and not label.startswith(BEGIN):
            found[-1] = kind, found[-1][1], at + 1
        else:
            found.append((kind, at, at + 1))
    return found
