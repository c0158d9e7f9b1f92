"""A class subset: the samples of the classes that a file names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hydractl.data.open import open_samples, open_stream
from hydractl.data.reading import Reading
from hydractl.data.sources import parse_data_spec
from hydractl.errors import DataError

LABELS = ["Snow_Owl", "cat", "dog", "cat", "hen", "dog"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [json.dumps({"text": f"t{at}", "label": label}) for at, label in enumerate(LABELS)]
    Path("all.jsonl").write_text("\n".join(rows))
    Path("some.txt").write_text("dog\n\nsnow owl\n")


def test_the_classes_of_a_file_count_in_its_order() -> None:
    found = open_samples("all.jsonl?only=some.txt", "text")
    assert (list(found.inputs), found.label_names) == (["t0", "t2", "t5"], ("dog", "snow owl"))
    assert found.labels.tolist() == [1, 0, 0]
    assert list(open_samples("all.jsonl?only=some.txt&label=label", "text", reading=Reading(limit=1)).inputs) == ["t0"]
    parts = [open_samples(f"all.jsonl%{part}/2?only=some.txt", "text") for part in (1, 2)]
    assert sorted(text for part in parts for text in part.inputs) == ["t0", "t2", "t5"]


def test_a_source_says_its_classes_again() -> None:
    spec = parse_data_spec("all.jsonl?only=some.txt&label=label")
    assert (spec.only, spec.columns) == ("some.txt", (("label", "label"),))
    assert parse_data_spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("classes", "message"),
    [("dog\nbird", "some.txt: bird is no class of all"), ("", "some.txt: names no class")],
)
def test_what_is_no_subset(classes: str, message: str) -> None:
    Path("some.txt").write_text(classes)
    with pytest.raises(DataError, match=message):
        open_samples("all.jsonl?only=some.txt", "text")
    with pytest.raises(DataError, match="leave `streaming` out"):
        open_stream("all.jsonl?only=some.txt", "text")
