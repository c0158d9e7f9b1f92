"""Columns that cannot be told apart, or are too many, are refused before a table is read."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from hydractl.bounds import COLUMNS
from hydractl.data.open import open_samples
from hydractl.errors import DataError
from tests.hostile import within_limits

Write = Callable[[Path, list[str]], None]


def csv(path: Path, names: list[str]) -> None:
    path.write_text(f"\n{','.join(names)}\n{','.join('a' for _ in names)}\n")


def tsv(path: Path, names: list[str]) -> None:
    path.write_text("\ufeff" + "\t".join(f'"{name}"' for name in names) + "\n" + "\t".join("a" for _ in names) + "\n")


def line(names: list[str]) -> str:
    return "{" + ",".join(f'{json.dumps(name)}: "a"' for name in names) + "}"


def jsonl(path: Path, names: list[str]) -> None:
    path.write_text(f'{{"text": "b"}}\n{line(names)}\n')


def rows_of_other_columns(path: Path, names: list[str]) -> None:
    path.write_text("\n".join(line([name]) for name in names))


def nested(path: Path, names: list[str]) -> None:
    path.write_text(f'[{{"text": "b", "more": [{line(names)}]}}]')


def arrow_table(names: list[str]) -> pa.Table:
    return pa.Table.from_arrays([pa.array(["a"])] * len(names), names=names)


def arrow(path: Path, names: list[str]) -> None:
    table = arrow_table(names)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Write] = {
    "a.csv": csv,
    "a.tsv": tsv,
    "a.jsonl": jsonl,
    "a.parquet": lambda path, names: parquet.write_table(arrow_table(names), path),
    "a.arrow": arrow,
}
WIDE: dict[str, Write] = {**WRITERS, "rows.jsonl": rows_of_other_columns, "nested.json": nested}


@pytest.mark.parametrize("name", WIDE)
def test_too_many_columns_are_refused_at_once(name: str, tmp_path: Path) -> None:
    WIDE[name](tmp_path / name, ["text", *(f"c{number}" for number in range(20_000))])
    with within_limits(), pytest.raises(DataError, match=rf"{name}: has more than {COLUMNS} columns: leave out"):
        open_samples(str(tmp_path / name), "text")


@pytest.mark.parametrize("rows", [jsonl, rows_of_other_columns])
def test_nor_may_there_be_more_of_them_later(rows: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hydractl.data.header.HEAD", 2**12)
    monkeypatch.setattr("hydractl.data.header.BLOCK", 2**12)
    rows(tmp_path / "rows", [f"c{number}" for number in range(COLUMNS + 2)])
    known = '{"text": "a \\"b\\": c: [", "label": "d"}\n' * 2000
    (tmp_path / "a.jsonl").write_text(known)
    with within_limits():
        assert len(open_samples(str(tmp_path / "a.jsonl"), "text")) == 2000
    (tmp_path / "a.jsonl").write_text(known + (tmp_path / "rows").read_text())
    with within_limits(), pytest.raises(DataError, match=f"a.jsonl: has more than {COLUMNS} columns"):
        open_samples(str(tmp_path / "a.jsonl"), "text")


DEEP = ['"x": ' + "[" * 10**5 + "]" * 10**5, '"x": ' + '{"a": ' * 10**5 + "1" + "}" * 10**5,
        '"x": ' + '{"b": 1, "a": ' * 65 + "1" + "}" * 65, '"x": ' + "[" * 10**5]  # fmt: skip


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize("block", [64, 2**20])
def test_endless_nesting_is_refused_before_it_is_read(
    deep: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hydractl.data.header.BLOCK", block)
    known = '{"text": "a [[[[ \\"{{{{\\" \\\\", "label": "d"}\n' * 100
    (tmp_path / "a.jsonl").write_text(known)
    assert len(open_samples(str(tmp_path / "a.jsonl"), "text")) == 100
    (tmp_path / "a.jsonl").write_text(known + '{"text": "a", ' + deep + "}\n")
    with within_limits(), pytest.raises(DataError, match="a.jsonl: is nested more than 64 deep"):
        open_samples(str(tmp_path / "a.jsonl"), "text")


@pytest.mark.parametrize("endless", ['\\"' * 2**20, "a" * 2**24 + '"}', "\\" * (2**20 + 1)])
def test_a_text_without_end_is_refused(endless: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "' + endless)
    with within_limits(), pytest.raises(DataError, match=r"a\.jsonl: (cannot be read|has a text of more than)"):
        open_samples(str(tmp_path / "a.jsonl"), "text")


@pytest.mark.parametrize("name", WRITERS)
def test_a_column_that_is_there_twice_is_named(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, ["text", "label", "text"])
    for place in (tmp_path / name, tmp_path):
        with pytest.raises(DataError, match=rf"{name}: has column 'text' twice: rename or remove one"):
            open_samples(str(place), "text")


def test_as_many_columns_as_may_be_are_read(tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", ["text", *(f"c{number}" for number in range(COLUMNS - 1))])
    with within_limits():
        assert open_samples(f"{tmp_path}/a.csv?text=text", "text").inputs == ["a"]


def test_columns_without_a_name_are_no_twins(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",,text\n0,1,a\n")
    assert open_samples(f"{tmp_path}/a.csv?text=text", "text").inputs == ["a"]


def test_nor_are_columns_within_others(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "in": {"text": "b"}}\n' * 2)
    assert open_samples(str(tmp_path / "a.jsonl"), "text").inputs == ["a", "a"]


def test_a_saved_data_set_is_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")
    arrow(tmp_path / "data-00000-of-00001.arrow", [f"c{number}" for number in range(COLUMNS + 1)])
    with pytest.raises(DataError, match=f"arrow: has more than {COLUMNS} columns"):
        open_samples(str(tmp_path), "text")


def test_what_is_packed_is_not_unpacked(tmp_path: Path) -> None:
    """A few bytes may become any number in a cache."""
    (tmp_path / "a.csv").write_bytes(gzip.compress(b"text,label\na,0\n"))
    (tmp_path / "text.csv").write_text("text,label\na,0\n")
    with tarfile.open(tmp_path / "b.jsonl", "w") as archive:
        archive.add(tmp_path / "text.csv", "text.csv")
    for name, form in (("a.csv", "gzip"), ("b.jsonl", "tar")):
        with pytest.raises(DataError, match=rf"{name}: is packed \({form}\): unpack it"):
            open_samples(str(tmp_path / name), "text")


def test_many_rows_are_read_within_the_limits(tmp_path: Path) -> None:
    rows = "".join(f"a good film number {number},{number % 3}\n" for number in range(200_000))
    (tmp_path / "a.csv").write_text(f"text,label\n{rows}")
    with within_limits():
        assert len(open_samples(str(tmp_path / "a.csv"), "text").content_hashes()) == 200_000


def test_many_files_that_nobody_reads_are_refused_within_the_limits(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    for number in range(30_000):
        os.symlink("nowhere", tmp_path / "cat" / f"{number}.dat")
    with within_limits(), pytest.raises(DataError, match="holds dat files, which are not read: give images or"):
        open_samples(str(tmp_path), "image")
