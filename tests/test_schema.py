import io
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest

from hydractl import schema
from hydractl.errors import ArtifactError
from hydractl.schema import Checked, Items, Origin, Schema, document, parse_json, parse_toml, read_json, read_text
from tests.damage import refuse_all

ORIGIN = Origin("x.json", ArtifactError, "write it again")


@dataclass(frozen=True)
class Size:
    height: int
    width: int

    def __post_init__(self) -> None:
        if self.height > 9:
            raise ValueError(f"height is {self.height}, should be at most 9")


class Form(Schema):
    count: Annotated[int, Checked(ge=1, le=5)]
    rate: float
    size: Size
    names: Items[str]
    extra: dict[str, int] = field(default_factory=dict)


GOOD = {"count": 2, "rate": 1, "size": {"height": 3, "width": 4}, "names": ["a", "b"], "extra": {"k": 1}}


def message(text: str) -> str:
    with pytest.raises(ArtifactError) as error:
        parse_json(text, ORIGIN).read(Form)
    return str(error.value)


def changed(**changes: object) -> str:
    return json.dumps(GOOD | changes)


def test_a_form_becomes_a_value() -> None:
    form = parse_json(json.dumps(GOOD), ORIGIN).read(Form)
    assert (form.count, form.rate, form.size, form.names, form.extra) == (2, 1.0, Size(3, 4), ("a", "b"), {"k": 1})


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (changed(count=9), "count is 9, should be less than or equal to 5"),
        (changed(count=True), "count is true, should be a valid integer"),
        (changed(count="2"), 'count is "2", should be a valid integer'),
        (changed(size={"height": 3}), "size.width is missing"),
        (changed(size={"height": 10, "width": 4}), "size: height is 10, should be at most 9"),
        (changed(names=["a", 3, 4]), "names.1 is 3, should be a valid string"),
        (changed(extra={"a\n": "b"}), r'extra.a\n is "b", should be a valid integer'),
        (changed(spare=1), "spare is unknown"),
        ("[1]", "is a list of 1, should be an object"),
        ("{", "is not readable JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        ('{"count": 1, "count": 2}', 'is not readable JSON (key "count" is given twice)'),
        ('{"rate": NaN}', "is not readable JSON (NaN is not a JSON number)"),
        ('{"rate": 1e999}', "is not readable JSON (1e999 is beyond what a number can be)"),
        (changed(names="v" * 10**6), f'names is "{"v" * 56}..., should be a valid array'),
        ("[" * 10**6, "is nested too deeply"),
    ],
)
def test_the_first_problem_is_named_by_its_key(text: str, finding: str) -> None:
    assert message(text) == f"x.json: {finding}: write it again"


def test_messages_stay_short_and_on_one_line() -> None:
    found = message(changed(**{"k\x1b[2J\n" * 1000: 1}))
    assert found.isprintable() and len(found) <= 300


def test_every_damage_is_one_line_of_ours() -> None:
    assert refuse_all(lambda text: parse_json(text, ORIGIN).read(Form), "x.json", ArtifactError, GOOD) > 0.8


def test_toml_and_values_that_were_read_before() -> None:
    text = 'count = 2\nrate = 1.5\nnames = ["a"]\n[size]\nheight = 1\nwidth = 2\n'
    assert parse_toml(text, ORIGIN).read(Form) == document(GOOD | {"rate": 1.5, "names": ["a"], "extra": {}, "size": {
        "height": 1, "width": 2}}, ORIGIN).read(Form)  # fmt: skip
    for damage, finding in [("rate = inf", "rate"), ("rate = 2020-01-01", "rate"), ("count = ", "readable TOML")]:
        with pytest.raises(ArtifactError, match=finding):
            parse_toml(f"{damage}\n" + text.replace("rate = 1.5\n", "").replace("count = 2\n", ""), ORIGIN).read(Form)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with pytest.raises(ArtifactError, match="is not a regular file"):
            read_text(path, ORIGIN)
    with pytest.raises(ArtifactError, match="is missing"):
        read_text(tmp_path / "none", ORIGIN)
    for name in ("zero\x00byte", "n" * 5000):
        with pytest.raises(ArtifactError, match="cannot be read"):
            read_text(tmp_path / name, ORIGIN)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ArtifactError, match="cannot be read .*utf-8"):
        read_text(tmp_path / "bytes", ORIGIN)


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbf{}")
    assert read_json(tmp_path / "x", ORIGIN).fields == {}


def test_standard_input_and_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "LARGEST", 8)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}')))
    assert read_json("-", ORIGIN).value == {"a": 1}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 12}')))
    with pytest.raises(ArtifactError, match="larger than the 8 bytes"):
        read_json("-", ORIGIN)
