from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from datasets import ClassLabel, List, Value

from hydractl.data.labels import label_lists, match_labels, read_classes, read_labels
from hydractl.data.open import open_samples
from hydractl.data.samples import Samples
from hydractl.errors import DataError

TWO = ClassLabel(names=["no", "yes"])


@pytest.mark.parametrize(
    ("values", "feature", "labels", "names"),
    [
        ([0, 1, None, -1], TWO, [0, 1, -1, -1], ("no", "yes")),
        (["b", "a", "b", None, ""], Value("string"), [1, 0, 1, -1, -1], ("a", "b")),
        ([3, 0, None], Value("int64"), [3, 0, -1], None),
        ([True, None, False], Value("bool"), [1, -1, 0], ("False", "True")),
        ([1.0, None, float("nan"), 0.0], Value("float64"), [1, -1, -1, 0], None),
        ([["b", "a"], [], ["b"]], List(Value("string")), [[1, 1], [0, 0], [0, 1]], ("a", "b")),
        ([[2], [0, 2]], List(Value("int64")), [[0, 0, 1], [1, 0, 1]], None),
        ([[1], []], List(ClassLabel(names=["x", "y"])), [[0, 1], [0, 0]], ("x", "y")),
        ([0.5], Value("float32"), "holds float32, not classes", None),
        ([1e160], Value("float64"), "holds float64, not classes", None),
        ([2**60], Value("int64"), "holds int64, not classes", None),
        ([1.0, float("inf")], Value("float64"), "holds float64, not classes", None),
    ],
)
def test_reads_or_says_what_is_no_class(values: list[Any], feature: Any, labels: Any, names: Any) -> None:
    table = datasets.Dataset.from_dict({"x": values}, features=datasets.Features({"x": feature}))
    read = read_labels(table, "x")
    found = (read.removeprefix("column x "), None) if isinstance(read, str) else (read[0].tolist(), read[1])
    assert found == (labels, names)


def samples(labels: list[int] | None, names: tuple[str, ...] | None) -> Samples:
    count = len(labels or [])
    numbers = None if labels is None else np.array(labels, dtype=np.int64)
    return Samples("data", "text", ["a"] * count, numbers, names)


NUMBERED = tuple(f"LABEL_{i}" for i in range(11))


@pytest.mark.parametrize(
    ("labels", "names", "model", "how", "expected"),
    [
        ([0, 1], ("cat", "dog"), ("cat", "dog"), "name", [0, 1]),
        ([0, 1], ("dog", "cat"), ("bird", "cat", "dog"), "name", [2, 1]),
        ([0, 1], ("negative", "positive"), ("NEGATIVE", "POSITIVE"), "name", [0, 1]),
        ([0, 1], ("sports car", "pick-up"), ("Pick_up", "sports_car"), "name", [1, 0]),
        ([0, 1], ("a", "A"), ("A", "a"), "name", [1, 0]),
        ([0, 1], ("crane", "crane"), ("crane", "crane #2"), "name", [0, 1]),
        ([0, 1], ("crane #2", "crane"), ("crane", "owl", "crane #2"), "name", [2, 0]),
        ([2, 0], None, ("crane", "owl", "crane #2"), "index", [2, 0]),
        ([0, 1], ("1", "0"), ("0", "1"), "name", [1, 0]),
        ([0, 1], None, ("1", "0"), "name", [1, 0]),
        ([2, 1], None, ("1", "2"), "name", [1, 0]),  # a gap in bare numbers is no class missed
        ([2, 1], None, ("2.0", "01"), "name", [0, 1]),
        ([1, 3], None, ("1", "2", "3-5", "3"), "name", [0, 3]),  # names, though not all classes are numbers
        ([1, 0], None, ("-1", "0", "1"), "name", [2, 1]),
        ([3, 1], None, ("0", "1", "2", "3+"), "name", [3, 1]),  # places, which the names agree with
        ([1, 0], ("False", "True"), ("TRUE", "false", "mixed"), "name", [0, 1]),
        ([1, 0, 1], ("False", "True"), ("TRUE", "FALSE"), "index", [1, 0, 1]),
        ([0, 1], ("caf\u00e9", "eau"), ("eau", "cafe\u0301"), "name", [1, 0]),
        ([0, 1], ("Cafe\u0301", "eau"), ("eau", "caf\u00e9"), "name", [1, 0]),
        ([0, 1], ("cafe\u0301", "caf\u00e9"), ("eau", "caf\u00e9"), "name", [1, 1]),
        ([2, 0], None, NUMBERED, "index", [2, 0]),
        ([2, 0], ("x", "y", "z"), NUMBERED, "index", [2, 0]),
        ([2, 0], ("10", "5", "9"), NUMBERED, "index", [9, 10]),
    ],
)
def test_matches(
    labels: list[int], names: tuple[str, ...] | None, model: tuple[str, ...], how: str, expected: list[int]
) -> None:
    matched = match_labels(samples(labels, names), model, how)
    assert matched.labels.tolist() == expected
    assert matched.label_names == model


@pytest.mark.parametrize(
    ("labels", "names", "model"),
    [
        ([10, 0], None, NUMBERED),
        ([1, 0], None, ("cat", "dog")),
        ([1, 0], ("False", "True"), ("negative", "positive")),
        ([1, 0], ("False", "True"), ("LABEL_0", "LABEL_1")),
        ([2, 0], ("0", "1", "10"), NUMBERED),
        ([2, 0], ("LABEL_0", "LABEL_1", "LABEL_10"), NUMBERED),
        ([2, 0], ("LABEL_0", "LABEL_1", "LABEL_10"), tuple("abcdefghijk")),
    ],
)
def test_numbers_are_places_of_the_models_classes_with_a_note(
    labels: list[int], names: tuple[str, ...] | None, model: tuple[str, ...]
) -> None:
    matched = match_labels(samples(labels, names), model)
    assert matched.labels.tolist() == [len(model) - 1, 0]
    [note] = matched.notes
    assert (names and names[0] != "False") or f"0 is {model[0]}, 1 is {model[1]}" in note


NO_INDEX = "^(?!.*`match_labels` index)"


@pytest.mark.parametrize(
    ("labels", "names", "model", "how", "message"),
    [
        ([0, 1], ("cat", "fox"), ("cat", "dog"), "name", r"labels are \[cat, fox\], the model's are \[cat, dog\]"),
        ([0, 1], ("cat", "fox"), ("cat", "dog"), "name", r"no single match for \[fox\]"),
        ([0, 1], ("cat", "dog"), ("LABEL_0", "LABEL_1"), "name", "no names: pass `match_labels` index"),
        ([0, 2], None, ("LABEL_0", "LABEL_1"), "name", "1 of 2 labels lie outside the model's classes 0 to 1"),
        ([0, 1], ("a", "b"), ("A", "a", "B"), "name", r"no single match for \[a\]"),
        ([0, 2, 3], None, ("cat", "dog"), "index", "2 of 3 labels lie outside .* classes 0 to 1, the largest is 3"),
        ([0, -1, -1], ("cat", "dog"), ("cat", "dog"), "name", r"data: sample 1 has no label \(-1 or empty\), 2 of 3"),
        (None, None, ("cat", "dog"), "name", "holds no labels"),
        ([0, 1], ("False", "True"), ("true", "fake"), "name", r"no single match for \[False\]"),
        ([0], tuple(f"c{i}" for i in range(99)), ("cat",), "name", r"c11, \.\.\. \(99 in all\)"),
        ([0, 2], None, ("1", "2", "3-5"), "name", r"\[2\] are names of classes, \[0\] are not: pass `match_labels`"),
        ([0, 1], ("fife", "six"), ("six", "five"), "name", "did you mean five for fife"),
        ([0], ("c\u0430t",), ("cat", "dog"), "name", r"cat \('cat'\) for c\u0430t \('c\\u0430t'\)"),
        ([0, 1], ("crane", "owl"), ("crane", "owl", "crane #2"), "name", "several classes called crane: .* index"),
        ([0, 1], ("Crane", "owl"), ("crane", "owl", "crane #2"), "name", "several classes called Crane: .* index"),
        ([0, 1], ("chat", "chien"), ("cat", "dog"), "name", "`match_labels` index"),
        ([0, 1], ("chat", "chien"), ("cat", "dog", "owl"), "name", NO_INDEX),
        ([0, 1], ("fife", "four"), ("four", "five"), "name", NO_INDEX),  # four shows another order
    ],
)
def test_refuses(
    labels: list[int] | None, names: tuple[str, ...] | None, model: tuple[str, ...], how: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        match_labels(samples(labels, names), model, how)


APART, TOGETHER = "e\u0301te\u0301", "\u00e9t\u00e9"  # as macOS and other systems write a name


@pytest.mark.parametrize(("there", "typed"), [(APART, TOGETHER), (TOGETHER, APART)])
def test_names_of_any_unicode_form_are_one(there: str, typed: str, tmp_path: Path) -> None:
    rows = f"{there},n,tags\nun texte,7,{there}\nun autre,8,hiver\n"
    (tmp_path / f"{there}.csv").write_text(rows)
    source = f"{there}={tmp_path}/{typed}.csv?text={typed}&label=tags"
    opened = open_samples(source, "text")
    assert opened.column(typed, "keep") == ["un texte", "un autre"]
    assert match_labels(opened, ("hiver", typed)).labels.tolist() == [1, 0]
    lists = datasets.Dataset.from_dict({"tokens": [["a", "b"]], "tags": [[there, "hiver"]]})
    assert match_labels(open_samples(lists, "text"), ("hiver", typed), tagged=True).labels.tolist() == [[1, 0]]
    several = open_samples([("a", [there]), ("b", [])], "text")
    assert match_labels(several, ("hiver", typed), several=True).labels.tolist() == [[0, 1], [0, 0]]


def test_a_list_of_classes_names_each_once(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("crane\nowl\ncrane\n")
    for given in (tmp_path / "classes.txt", ["crane", "owl", "crane"]):
        with pytest.raises(DataError, match="classes.*: names crane"):
            read_classes(given)


def test_reads_columns_of_0_and_1_and_names_the_row_of_what_is_neither() -> None:
    columns = {"a": [0, 1, 1], "b": [True, False, True], "c": [0, 2, 1], "d": [[0], None, [1]]}
    table = datasets.Dataset.from_dict(columns)
    read = read_labels(table, "a,b")
    assert not isinstance(read, str)
    assert (read[0].tolist(), read[1]) == ([[0, 1], [1, 0], [1, 1]], ("a", "b"))
    assert "column c of sample 1 is 2" in str(read_labels(table, "a,c"))
    assert "sample 1 has no list" in str(read_labels(table, "d"))
    assert "sample 1 holds 3" in str(label_lists([["a"], [3]]))
    assert "sample 1 holds a label twice" in str(label_lists([[1], [0, 1, 0]]))
    assert "sample 1 is not from 0 to 1" in str(label_lists([[0], [5]], ("x", "y")))


def test_several_labels_match_by_name_and_by_number() -> None:
    hot = np.array([[1, 0], [1, 1]])
    named = match_labels(Samples("d", "text", ["t", "u"], hot, ("dog", "Cat")), ("cat", "owl", "dog"), several=True)
    assert (named.labels.tolist(), named.label_names) == ([[0, 0, 1], [1, 0, 1]], ("cat", "owl", "dog"))
    numbered = match_labels(Samples("d", "text", ["t", "u"], hot), ("cat", "owl", "dog"), several=True)
    assert numbered.labels.tolist() == [[1, 0, 0], [1, 1, 0]]
    with pytest.raises(DataError, match="cow"):
        match_labels(Samples("d", "text", ["t", "u"], hot, ("dog", "cow")), ("cat", "owl", "dog"), several=True)
