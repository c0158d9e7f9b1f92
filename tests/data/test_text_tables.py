import csv
import json
import random
from pathlib import Path

import pytest

from hydractl.data.open import open_samples
from hydractl.errors import DataError

IDS = ["1234567890123456789", "", "01001", "12E4", "123456789012345678901234", "1e400", "-5", "2024-01-02", " x ", "NA"]
TEXTS = ["good, film", "bad; film", 'a "quoted" one', "two\nlines", "tab\there", "a|b", "42", "é", "NA", "TRUE"]


def write(path: Path, separator: str, rows: list[list[str]], end: str = "\r\n") -> str:
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=separator, lineterminator=end).writerows(rows)
    return str(path)


def column(source: str, name: str = "id") -> list[object]:
    return ["" if value is None else value for value in open_samples(source, "text").column(name, "id_column")]


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.tsv", "\t"), ("a.csv", ";"), ("a.csv", "|")])
def test_cells_are_the_texts_that_were_written(name: str, separator: str, tmp_path: Path) -> None:
    rows = [list(cells) for cells in zip(IDS, TEXTS, ["1"] * 5 + ["0"] * 5, strict=True)]
    source = write(tmp_path / name, separator, [["id", "text", "label"], *rows])
    samples = open_samples(source, "text")
    assert column(source) == IDS
    assert list(samples.inputs) == TEXTS
    assert samples.labels is not None and samples.labels.tolist() == [1] * 5 + [0] * 5
    assert bool(samples.notes) == (separator in ";|")


@pytest.mark.parametrize("value", ["12345678901234567890123", "1e400", "1.50E+3", "true", '"01"', "null", '[1, "a"]'])
def test_values_of_json_lines_are_the_texts_that_were_written(value: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"id": {value}, "text": "a"}}\n\n{{"text": "b", "id": 7}}\n')
    expected = {'"01"': "01", "null": ""}.get(value, value)
    assert column(f"{tmp_path}/a.jsonl") == [expected, "7"]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_word_after_many_numbers(name: str, tmp_path: Path) -> None:
    ids = [*map(str, range(20_000)), "A1"]
    lines = [f'{{"text": "t", "id": {json.dumps(one) if one == "A1" else one}}}' for one in ids]
    lines = ["text,id", *(f"t,{one}" for one in ids)] if name == "a.csv" else lines
    (tmp_path / name).write_text("\n".join(lines))
    assert column(f"{tmp_path}/{name}") == ids


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize(
    ("cells", "labels", "names"),
    [
        (["0", "2", "1"], [0, 2, 1], None),
        (["1.0", "0.0", "null"], [1, 0, -1], None),
        (["true", "false", "true"], [1, 0, 1], ("False", "True")),
    ],
)
def test_labels_are_read_as_what_all_cells_are(
    cells: list[str], labels: list[int], names: tuple[str, ...] | None, name: str, tmp_path: Path
) -> None:
    lines = [f'{{"text": "a", "label": {cell}}}' for cell in cells]
    rows = ["text,label", *(f"a,{cell.replace('null', '').upper()}" for cell in cells)]
    (tmp_path / name).write_text("\n".join(rows if name == "a.csv" else lines))
    samples = open_samples(f"{tmp_path}/{name}", "text")
    assert samples.labels is not None
    assert (samples.labels.tolist(), samples.label_names) == (labels, names)


def test_numbers_beside_texts_are_no_texts(tmp_path: Path) -> None:
    for name, text in (("a.csv", "stars,review\n5,good\n,bad\n"), ("a.jsonl", '{"stars": 5, "review": "good"}\n')):
        (tmp_path / name).write_text(text)
        assert open_samples(f"{tmp_path}/{name}", "text").columns == ("review",)


def test_lists_and_objects_of_json_lines_keep_their_types(tmp_path: Path) -> None:
    row = {"tokens": ["a", "b"], "tags": [0, 1], "id": 1}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps({**row, 'tags': [1, 1]})}\n")
    samples = open_samples(f"{tmp_path}/a.jsonl", "text")
    assert samples.labels is not None and samples.labels.tolist() == [[0, 1], [1, 1]]
    (tmp_path / "b.jsonl").write_text('{"in": {"en": "one"}, "label": 1}\n{"in": {"en": "two"}, "label": 0}\n')
    assert list(open_samples(f"{tmp_path}/b.jsonl?text=in.en", "text").inputs) == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("text\nbad; film\ngood; film\n", ["text"]),
        ("text; raw\nbad film\ngood film\n", ["text; raw"]),
        ('text,label\n"a;b",x\n"c;d",y\n', ["text", "label"]),
        ("sep=;\ntext;label\na,b;x\n", ["text", "label"]),
        ('"text";"label"\n"a, long; one";x\n', ["text", "label"]),
        ("text;label\n" + "x," * 100_000 + ";1\n", ["text", "label"]),
    ],
)
def test_only_what_divides_every_row_separates_cells(content: str, columns: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    samples = open_samples(f"{tmp_path}/a.csv", "text")
    assert samples.table is not None and samples.table.column_names == columns


@pytest.mark.parametrize("content", ["text\nbad, very\ngood\n", "text,label\nbad, very,x\ngood,y\n"])
def test_a_first_row_longer_than_the_header_is_an_error(content: str, tmp_path: Path) -> None:
    for name in ("a.csv", "split/test.csv"):  # pandas would make row names of what is too much
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "split" / "train.csv").write_text("text,label\ngood,y\n" if "label" in content else "text\ngood\n")
    for source in ("a.csv", "split:test"):
        with pytest.raises(DataError, match=r"row 1 has . cells: put texts that hold ',' in quotes"):
            open_samples(f"{tmp_path}/{source}", "text")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n[1]\n', r"a.jsonl: line 2"),
        ("a.csv", b"text;label\ngood film;x\nbad; film;y\n", "row 2 has 3 cells"),
        ("a.csv", b"\xef\xbb\xbftext,,,text,label\na,,,b,x\n", "names the column text twice"),
        *(
            ("a.csv", f"text{mark}label\na{mark}b\n".encode("utf-16"), "in UTF-16 has: save it as UTF-8")
            for mark in ",;\t"
        ),
    ],
)
def test_a_damaged_file_is_refused_by_its_line(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_samples(f"{tmp_path}/{name}", "text")


def test_random_cells_come_back(tmp_path: Path) -> None:
    draw = random.Random(0)
    rows = [["".join(draw.choices(" ,;\t|\"\n'a1é-", k=draw.randint(1, 9))) + "x" for _ in "ab"] for _ in range(200)]
    source = write(tmp_path / "a.csv", ",", [["text", "id"], *rows])
    expected = list(map(list, zip(*rows, strict=True)))
    assert [list(open_samples(source, "text").inputs), column(source)] == expected
