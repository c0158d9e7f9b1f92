"""Metrics of labelled words and of the spans that they make."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydractl.metrics.classification import ClassNumbers, classification_metrics, tabulate
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.words import find_spans, span_ranges, span_tags, tabulate_words, word_metrics, word_replicates

metrics = pytest.importorskip("seqeval.metrics")
NAMES = ("O", "B-X", "I-X")
#: Two sentences: the first of three words, "B-X I-X O", the second of two, "O B-X".
PLACES = np.array([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]])
P = np.array([[0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.9, 0.05, 0.05], [0.3, 0.4, 0.3], [0.25, 0.5, 0.25]])
LABELS = np.array([1, 2, 0, 0, 1])


def test_worked_out_by_hand() -> None:
    table = tabulate_words(np.log(P)[None], LABELS, 1.0, PLACES, names=NAMES)
    assert table.msp.tolist() == pytest.approx([0.6, 0.4])
    assert table.required_outcomes().correct.tolist() == [True, False]
    assert table.required_outcomes().nll.tolist() == pytest.approx(-np.log([0.8 * 0.6 * 0.9, 0.3 * 0.5]) / [3, 2])
    assert table.prediction.tolist() == [[1, 2, 0], [1, 1, -1]]
    found = word_metrics(table)
    assert found.accuracy == pytest.approx(4 / 5)
    # Found are X at words 0 to 1 (.6), X at 0 (.4, wrong) and X at 1 (.5); all but the second are true.
    assert (found.precision, found.recall, found.span_f1) == pytest.approx((2 / 3, 1, 4 / 5))
    assert found.span_ece == pytest.approx((abs(1 - 0.6) + abs(0 - 0.4) + abs(1 - 0.5)) / 3)
    assert tabulate_words(np.log(P)[None], None, 1.0, PLACES, names=NAMES).spans is None
    ends = tabulate_words(np.log(P)[None], LABELS, 1.0, PLACES, names=("O", "E-X", "I-X"))
    # E ends a span: found are "E I" and "E E", a span a word; true are "E I" and E.
    assert ends.spans is not None and (len(ends.spans.correct), ends.spans.true.tolist()) == (4, [2, 1])


def test_words_have_the_numbers_of_samples_of_one_class() -> None:
    logits = np.random.default_rng(0).normal(size=(3, 60, 4)).astype(np.float32)
    labels = np.random.default_rng(1).integers(0, 4, 60)
    places = np.stack([np.arange(60) // 6, np.arange(60) % 6], axis=1)
    found = word_metrics(tabulate_words(logits, labels, 1.3, places, names=("A", "B", "C", "D")))
    wanted = classification_metrics(tabulate(logits, labels, 1.3))
    assert {name: getattr(found, name) for name in vars(wanted)} == pytest.approx(vars(wanted))
    assert found.span_f1 is None


def test_numbers_of_each_tag_are_over_words() -> None:
    table = tabulate_words(np.log(P)[None], LABELS, 1.0, PLACES, names=NAMES)
    found = find_task("token-classification").class_numbers(table, NAMES, np.array([True, True]))
    assert found == {
        "O": ClassNumbers(2, 0.5, 1.0, pytest.approx(0.65), answers={"O": 1, "B-X": 1}),
        "B-X": ClassNumbers(2, 1.0, pytest.approx(2 / 3), pytest.approx(0.65), answers={"B-X": 2}),
        "I-X": ClassNumbers(1, 1.0, 1.0, pytest.approx(0.6), answers={"I-X": 1}),
    }


@pytest.mark.parametrize("letters", ["BI", "IE", "BIES"])
@given(sentences=st.lists(st.lists(st.tuples(*[st.integers(0, 8)] * 2), min_size=1), min_size=1, max_size=6))
def test_spans_count_as_seqeval_counts_them(letters: str, sentences: list[list[tuple[int, int]]]) -> None:
    names = ("O", *(f"{letter}-{kind}" for kind in "XY" for letter in letters))
    sentences = [[(a % len(names), b % len(names)) for a, b in own] for own in sentences]
    rows = np.repeat(np.arange(len(sentences)), [len(own) for own in sentences])
    true, ours = np.array([pair for own in sentences for pair in own]).T
    table = find_spans(names, rows, ours, np.ones(len(rows)), labels=true)
    theirs = [[[names[pair[side]] for pair in own] for own in sentences] for side in (0, 1)]
    right = int(table.correct.sum())
    assert right / max(len(table.correct), 1) == metrics.precision_score(*theirs, zero_division=0)
    assert right / max(int(table.true.sum()), 1) == metrics.recall_score(*theirs, zero_division=0)


#: What each scheme calls the words of a span, by the number of them; IOB1 begins one by B only beside its like.
ENCODED = {
    "IOB2": lambda size: "B" + "I" * (size - 1),
    "IOE2": lambda size: "I" * (size - 1) + "E",
    "IOBES": lambda size: "S" if size == 1 else "B" + "I" * (size - 2) + "E",
    "BILOU": lambda size: "U" if size == 1 else "B" + "I" * (size - 2) + "L",
}


@pytest.mark.parametrize("scheme", ENCODED)
@given(pieces=st.lists(st.tuples(st.sampled_from(["O", "X", "Y-Z"]), st.integers(1, 4)), min_size=1))
def test_spans_of_a_scheme_are_those_of_seqeval_by_its_name(scheme: str, pieces: list[tuple[str, int]]) -> None:
    of_scheme = pytest.importorskip("seqeval.scheme")
    words = [kind if kind == "O" else f"{letter}-{kind}" for kind, size in pieces for letter in ENCODED[scheme](size)]
    letters = set(scheme) - set("O12")
    names = ["O", "[PAD]", *(f"{letter}-{kind}" for letter in letters for kind in ("X", "Y-Z"))]
    theirs = of_scheme.Entities([words], getattr(of_scheme, scheme)).entities[0]
    assert span_ranges(words, span_tags(names)) == [(one.tag, one.start, one.end) for one in theirs]


def test_letters_are_tags_only_where_a_scheme_says_so() -> None:
    def spans(words: str, *names: str) -> list[tuple[str, int, int]]:
        return span_ranges(words.split(), span_tags(names or words.split()))

    # IOB1: B begins a span beside another of its kind alone.
    assert spans("I-X I-X B-X O I-Y") == [("X", 0, 2), ("X", 2, 3), ("Y", 4, 5)]
    assert spans("E-MAIL E-MAIL O", "O", "E-MAIL", "PHONE") == [("E-MAIL", 0, 2)]
    assert spans("U-TURN U-TURN", "O", "U-TURN", "B-X", "I-X", "[PAD]") == [("U-TURN", 0, 2)]
    assert spans("B-X M-X E-X S-X", "O", "B-X", "M-X", "E-X", "S-X") == [("X", 0, 3), ("X", 3, 4)]
    assert spans("B I B O", "B", "I", "O") == [("_", 0, 2), ("_", 2, 3)]  # as seqeval calls it
    assert spans("B N B", "B", "N") == [("B", 0, 1), ("N", 1, 2), ("B", 2, 3)]
    # Two labels of one name, which the second carries with a number.
    assert span_ranges(["B-X", "I-X #2", "O #2"], span_tags(["O", "B-X", "I-X", "I-X #2", "O #2"])) == [("X", 0, 2)]


def test_whole_sentences_are_drawn() -> None:
    table = tabulate_words(np.log(P)[None], LABELS, 1.0, PLACES, names=NAMES)
    drawn = word_replicates(table, 200)
    # Of two sentences, both, or one of them twice.
    assert set(np.round(drawn["accuracy"], 9)) == {round(4 / 5, 9), 1.0, 0.5}
    assert set(np.round(drawn["recall"], 9)) == {1.0} and drawn["span_f1"].shape == (200,)
