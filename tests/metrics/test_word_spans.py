"""Metrics of labelled words and of the spans that they make."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydractl.metrics.calibration import classification_metrics
from hydractl.metrics.prediction_table import tabulate
from hydractl.metrics.word_spans import find_spans, tabulate_words, word_metrics, word_replicates

metrics = pytest.importorskip("seqeval.metrics")
NAMES = ("O", "B-X", "I-X")
#: Two sentences: the first of three words, "B-X I-X O", the second of two, "O B-X".
PLACES = np.array([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]])
P = np.array([[0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.9, 0.05, 0.05], [0.3, 0.4, 0.3], [0.25, 0.5, 0.25]])
LABELS = np.array([1, 2, 0, 0, 1])


def test_worked_out_by_hand() -> None:
    table = tabulate_words(np.log(P)[None], LABELS, 1.0, PLACES, names=NAMES)
    assert table.msp.tolist() == pytest.approx([0.6, 0.4])
    assert table.labelled().correct.tolist() == [True, False]
    assert table.labelled().nll.tolist() == pytest.approx(-np.log([0.8 * 0.6 * 0.9, 0.3 * 0.5]) / [3, 2])
    assert table.prediction.tolist() == [[1, 2, 0], [1, 1, -1]]
    found = word_metrics(table)
    assert found.accuracy == pytest.approx(4 / 5)
    # Found are X at words 0 to 1 (.6), X at 0 (.4, wrong) and X at 1 (.5); all but the second are true.
    assert (found.precision, found.recall, found.span_f1) == pytest.approx((2 / 3, 1, 4 / 5))
    assert found.span_ece == pytest.approx((abs(1 - 0.6) + abs(0 - 0.4) + abs(1 - 0.5)) / 3)
    assert tabulate_words(np.log(P)[None], None, 1.0, PLACES, names=NAMES).spans is None


def test_words_have_the_numbers_of_samples_of_one_class() -> None:
    logits = np.random.default_rng(0).normal(size=(3, 60, 4)).astype(np.float32)
    labels = np.random.default_rng(1).integers(0, 4, 60)
    places = np.stack([np.arange(60) // 6, np.arange(60) % 6], axis=1)
    found = word_metrics(tabulate_words(logits, labels, 1.3, places, names=("A", "B", "C", "D")))
    wanted = classification_metrics(tabulate(logits, labels, 1.3))
    assert {name: getattr(found, name) for name in vars(wanted)} == pytest.approx(vars(wanted))
    assert found.span_f1 is None


@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1), min_size=1, max_size=6))
def test_spans_count_as_seqeval_counts_them(sentences: list[list[tuple[int, int]]]) -> None:
    names = ("O", "B-X", "I-X", "B-Y", "I-Y")
    rows = np.repeat(np.arange(len(sentences)), [len(own) for own in sentences])
    true, ours = np.array([pair for own in sentences for pair in own]).T
    table = find_spans(names, rows, ours, np.ones(len(rows)), labels=true)
    theirs = [[[names[pair[side]] for pair in own] for own in sentences] for side in (0, 1)]
    right = int(table.correct.sum())
    assert right / max(len(table.correct), 1) == metrics.precision_score(*theirs, zero_division=0)
    assert right / max(int(table.true.sum()), 1) == metrics.recall_score(*theirs, zero_division=0)


def test_whole_sentences_are_drawn() -> None:
    table = tabulate_words(np.log(P)[None], LABELS, 1.0, PLACES, names=NAMES)
    drawn = word_replicates(table, 200)
    # Of two sentences, both, or one of them twice.
    assert set(np.round(drawn["accuracy"], 9)) == {round(4 / 5, 9), 1.0, 0.5}
    assert set(np.round(drawn["recall"], 9)) == {1.0} and drawn["span_f1"].shape == (200,)
