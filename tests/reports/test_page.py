"""The classes of a report on its page: the matrix, the most frequent mistakes, and the table by class."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hydractl.errors import ArtifactError
from hydractl.evaluation.results import LabelledMetrics, Results, SystemResult
from hydractl.metrics.classification import ByClass, ClassNumbers, numbers_of_classes, tabulate
from hydractl.reports import page as pages
from hydractl.reports.page import Counted, by_class_of, html_page, mistakes_of, read_report, report_json

#: Of four cats three are cats, one is a dog; of two dogs one is a cat; no sample is a fox, and no answer a cow.
PETS = {
    "cat": ClassNumbers(4, 0.75, 0.75, 0.9, flagged=0.25, answers={"cat": 3, "dog": 1}),
    "dog": ClassNumbers(2, 0.0, 0.0, 0.6, flagged=0.0, answers={"cat": 1, "fox": 1}),
    "fox": ClassNumbers(0, precision=0.0, answers={}),
}


def system(by_class: ByClass | None) -> SystemResult:
    return SystemResult(id=LabelledMetrics(6, accuracy=0.5), ood={}, by_class=by_class)


def many(classes: int, samples: int, seed: int = 0) -> ByClass:
    draw = np.random.default_rng(seed)
    labels = np.arange(samples) % classes
    logits = draw.normal(size=(1, samples, classes)) + 3.5 * np.eye(classes)[labels]
    names = [f"class number {number}" for number in range(classes)]
    return numbers_of_classes(tabulate(logits, labels), names, draw.random(samples) < 0.1)


def test_the_matrix_has_every_answer_and_the_sentence_the_most_frequent_mistake() -> None:
    [pets] = mistakes_of({"single": PETS})
    assert "“cat” is answered as “dog”, 1 of 4 times" in pets.sentence
    assert not pets.listed
    counts = {name: [cell.samples for cell in row] for name, row in pets.rows.items()}
    assert counts == {"cat": [3, 1, 0], "dog": [1, 0, 1], "fox": [0, 0, 0]}
    # Right answers are shaded by their share, mistakes beside the largest share of one: half of the dogs are cats.
    assert pets.rows["cat"] == [Counted(3, 75), Counted(1, 50), Counted(0, 0)]
    assert pets.rows["dog"] == [Counted(1, 100), Counted(0, 0), Counted(1, 100)]


def test_the_lowest_recall_comes_first_and_a_second_system_beside_the_first() -> None:
    other = {**PETS, "cat": replace(PETS["cat"], recall=0.5, flagged=None)}
    table = pages.class_table({"a": PETS, "b": {"cat": other["cat"]}})
    assert table.systems == ("dog", "cat", "fox")
    assert [(title, [name for name, _ in columns]) for title, columns in table.groups] == [
        ("", ["samples"]),
        ("a", ["recall %", "precision %", "confidence %", "flagged %"]),
        ("b", ["recall %", "precision %", "confidence %"]),
    ]
    assert [[cell.text for cell in columns[0][1]] for _, columns in table.groups] == [
        ["2", "4", "0"],
        ["0.0", "75.0", "-"],
        ["-", "50.0", "-"],
    ]


def test_nothing_is_mistaken_for_anything_where_all_is_right_and_labels_are_chosen_each_by_itself() -> None:
    [right] = mistakes_of({"a": {"cat": ClassNumbers(2, 1.0, 1.0, 0.9, answers={"cat": 2})}})
    assert "right" in right.sentence and right.rows == {"cat": [Counted(2, 100)]}
    [never] = mistakes_of({"a": {"cat": ClassNumbers(0, answers={"dog": 0})}})  # as no evaluation writes it
    assert never.rows == {"cat": [Counted(0, 0)]}
    labels = {"cat": ClassNumbers(2, 1.0, 1.0, 0.9)}
    assert not list(mistakes_of({"a": labels}))
    page = html_page(Results(models={"a": system(labels)}), {})
    assert "mistaken" not in page and "Every label" in page


def test_the_best_and_the_first_other_system_are_shown() -> None:
    models = {"a": system(PETS), "b": system(None), "c": system(PETS)}
    assert list(by_class_of(models, "a")) == ["a"]
    assert list(by_class_of(models, "c")) == ["c", "a"]
    assert by_class_of({"b": system(None)}, "b") == {}


@pytest.mark.parametrize(("classes", "drawn"), [(pages.MOST, True), (pages.MOST + 1, False)])
def test_beyond_what_a_matrix_can_show_the_most_frequent_mistakes_are_listed(classes: int, drawn: bool) -> None:
    numbers = many(classes, 40 * classes)
    [found] = mistakes_of({"a": numbers})
    assert (len(found.rows), len(found.listed)) == ((classes, 0) if drawn else (0, pages.LISTED))
    page = html_page(Results(models={"a": system(numbers)}), {})
    assert page.count('class="matrix"') == drawn
    if not drawn:
        counts = [int(re.findall(r": (\d+) of 40$", line)[0]) for line in found.listed]
        assert counts == sorted(counts, reverse=True)
        assert all(f"<li>{line}</li>" in page for line in found.listed)
    assert page.index("<details><summary><h2>Every class") < page.index("class number 3</td>")


def test_a_page_of_a_thousand_classes_is_small() -> None:
    models = {name: system(many(1000, 5000, seed)) for seed, name in enumerate(("single", "hydra"))}
    assert len(html_page(Results(models=models), {}).encode()) < 300_000


def test_names_of_classes_are_text() -> None:
    bad = "<b onclick='x'>\x1b[2J"
    page = html_page(Results(models={"a": system({bad: ClassNumbers(3, 0.0, answers={"dog": 3}), **PETS})}), {})
    assert "<b onclick" not in page and "\x1b" not in page
    assert page.count("&lt;b onclick") >= 4  # sentence, row, column and table


def test_a_report_is_read_back_and_counts_are_believed_only_where_they_can_be(tmp_path: Path) -> None:
    report = Results(models={"a": system(PETS)})
    content = report_json(report)
    by_class = content["models"]["a"]["by_class"]
    assert by_class["fox"] == {"samples": 0, "precision": 0.0, "answers": {}}
    path = tmp_path / "report.json"
    path.write_text(json.dumps(content))
    assert read_report(str(path)).models["a"].by_class == PETS
    by_class["cat"]["answers"]["dog"] = -1
    path.write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=r"by_class\.cat\.answers\.dog"):
        read_report(str(path))
