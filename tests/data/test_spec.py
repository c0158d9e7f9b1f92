from __future__ import annotations

from pathlib import Path

import pytest

from hydractl.data.spec import DataSpec, parse_data_spec
from hydractl.errors import DataError


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "odd:name.csv", "a=b.csv", "near=x.csv"):
        Path(name).write_text("text\nhello\n")
    for name in ("cifar10", "deep/sst2", "C:"):
        Path(name).mkdir(parents=True)
    Path("cifar10/validation.parquet").touch()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.csv", DataSpec("a", "a.csv")),
        ("a.csv:train", DataSpec("a", "a.csv", split="train")),
        ("mine=a.csv", DataSpec("mine", "a.csv")),
        ("near/mine=a.csv", DataSpec("mine", "a.csv", group="near")),
        ("far/cifar10=cifar10:validation", DataSpec("cifar10", "cifar10", split="validation", group="far")),
        ("cifar10:validation[10:20]", DataSpec("cifar10", "cifar10", split="validation[10:20]")),
        ("cifar10:plain:train[:10%]", DataSpec("cifar10", "cifar10", "plain", "train[:10%]")),
        ("cifar10:[:100]", DataSpec("cifar10", "cifar10", split="[:100]")),
        ("cifar10:a[1:2]+b[3:4]", DataSpec("cifar10", "cifar10", split="a[1:2]+b[3:4]")),
        ("cifar10/validation.parquet", DataSpec("cifar10", "cifar10/validation.parquet")),
        ("deep/sst2", DataSpec("sst2", "deep/sst2")),
        ("odd:name.csv", DataSpec("odd:name", "odd:name.csv")),
        ("odd:name.csv:train", DataSpec("odd:name", "odd:name.csv", split="train")),
        ("a=b.csv", DataSpec("a=b", "a=b.csv")),
        ("x=a=b.csv", DataSpec("x", "a=b.csv")),
        ("near=x.csv", DataSpec("near=x", "near=x.csv")),
        ("glue:sst2:validation", DataSpec("glue", "glue", "sst2", "validation")),
        ("owner/name", DataSpec("name", "owner/name")),
        ("far/textures=owner/name:test", DataSpec("textures", "owner/name", split="test", group="far")),
    ],
)
def test_reads_every_spelling(text: str, expected: DataSpec) -> None:
    assert parse_data_spec(text, grouped=True) == expected


def test_home_is_expanded_where_the_shell_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_data_spec("x=~/a.csv") == DataSpec("x", str(tmp_path / "a.csv"))


def test_says_the_source_as_it_was_asked_for() -> None:
    assert str(DataSpec("x", "glue", "sst2", "validation")) == "glue:sst2:validation"


@pytest.mark.parametrize(
    ("text", "grouped", "message"),
    [
        ("", False, "names no data"),
        ("x=", False, "names no data"),
        ("middle/x=a.csv", True, "use near/ or far/"),
        ("near/x=a.csv", False, "groups are for OOD data"),
        ("missing.csv", False, "no such file or folder"),
        ("missing.csv:train", False, "no such file or folder"),
        ("./missing", False, "no such file or folder"),
        ("some/deep/path", False, "no such file or folder"),
        ("D:\\data\\a.csv", False, "no such file or folder"),
        ("a:b:c:d", False, "no such file or folder"),
        ("x" * 5000, False, "no such file or folder"),
    ],
)
def test_refuses(text: str, grouped: bool, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        parse_data_spec(text, grouped)
    assert "\n" not in str(caught.value)
