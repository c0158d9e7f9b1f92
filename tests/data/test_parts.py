"""Parts of a data set: disjoint, together the whole, and the same whatever the order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hydractl.data.open import open_samples, open_stream
from hydractl.data.reading import Reading
from hydractl.data.sources import Part, parse_data_spec
from hydractl.errors import DataError


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "texts.csv"
    path.write_text("text,label\n" + "".join(f"text {i},{i % 2}\n" for i in range(400)) + "text 7,1\n")
    return path


def texts(source: str, **options: object) -> list[str]:
    return list(open_samples(source, "text", **options).inputs)  # type: ignore[arg-type]


def test_parts_make_up_the_whole_and_have_nothing_in_common(table: Path) -> None:
    parts = [texts(f"{table}%{i}/4") for i in range(1, 5)]
    assert sorted(text for part in parts for text in part) == sorted(texts(str(table)))
    assert sum(len(set(part)) for part in parts) == 400
    assert all(70 < len(part) < 130 for part in parts)
    assert sum("text 7" in part for part in parts) == 1
    assert texts(f"{table}%2-3/4") == [text for text in texts(str(table)) if text in parts[1] + parts[2]]


def test_they_do_not_depend_on_the_order_but_on_the_seed(table: Path) -> None:
    lines = table.read_text().splitlines()
    other = table.with_name("other.csv")
    other.write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    assert set(texts(f"{table}%1/3")) == set(texts(f"{other}%1/3"))
    assert set(texts(f"{table}%1/3")) != set(texts(f"{table}%1/3@1"))


def test_a_part_of_a_part_divides_it_anew(table: Path) -> None:
    half = texts(f"{table}%1/2")
    thirds = [texts(f"{table}%1/2%{i}/3") for i in (1, 2, 3)]
    assert sorted(text for third in thirds for text in third) == sorted(half)
    quarters = [texts(f"{table}%1/2%{i}/2") for i in (1, 2)]  # of the numbers that say what is in the half
    assert sorted(text for quarter in quarters for text in quarter) == sorted(half)
    assert all(70 < len(quarter) < 130 for quarter in quarters)
    assert texts(f"{table}%1-2/4%1/2") != texts(f"{table}%1/2%1-2/4")
    assert str(parse_data_spec(f"{table}%1/2@3%2/3")) == f"{table}%1/2@3%2/3"


def test_a_part_stands_before_columns_or_behind_them(table: Path) -> None:
    before, behind = f"{table}%1/2%2/3?text=text", f"{table}%1/2?text=text%2/3"
    assert texts(before) == texts(behind) == texts(f"{table}%1/2%2/3")
    assert str(parse_data_spec(behind)) == before


def test_a_limit_is_of_the_part(table: Path) -> None:
    part = texts(f"{table}%1/2")
    few = texts(f"{table}%1/2", reading=Reading(limit=10))
    assert len(few) == 10
    assert set(few) < set(part)


def test_labels_stay_with_their_samples(table: Path) -> None:
    samples = open_samples(f"{table}%1/2", "text")
    assert samples.labels is not None
    for text, label in zip(samples.inputs, samples.labels, strict=True):
        assert label == int(text.split()[1]) % 2
    assert str(parse_data_spec(f"{table}%1/2@3")) == f"{table}%1/2@3"


def test_a_file_of_that_name_wins(table: Path) -> None:
    odd = table.rename(table.with_name("a%1"))
    (odd.parent / "a%1.csv").write_text("text\nonly this\n")
    assert parse_data_spec(f"{odd.parent}/a%1.csv").part is None


@pytest.mark.parametrize("text", ["x%0/4", "x%5/4", "x%3-2/4", "x%1/1001"])
def test_parts_that_there_are_not(text: str) -> None:
    with pytest.raises(DataError, match="no such part"):
        parse_data_spec(text)


def test_a_part_that_is_empty_and_one_of_a_stream(table: Path, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text\nalone\n")
    with pytest.raises(DataError, match="holds none of the 1 samples"):
        [texts(f"{tmp_path / 'one.csv'}%{i}/2") for i in (1, 2)]
    with pytest.raises(DataError, match="leave `streaming` out"):
        open_stream(f"{table}%1/2", "text")


def test_by_hand() -> None:
    hashes = np.arange(10_000, dtype=np.uint64)
    sizes = [len(Part(i, i, 10).of(hashes)) for i in range(1, 11)]
    assert sum(sizes) == 10_000
    assert all(900 < size < 1100 for size in sizes)
