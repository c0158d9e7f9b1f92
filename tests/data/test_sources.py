from __future__ import annotations

from pathlib import Path

import pytest

from hydractl.data.sources import DataSpec, DataValues, parse_data, parse_data_sets, parse_data_spec
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
        ("a.csv?text=title,content", DataSpec("a", "a.csv", columns=(("text", "title,content"),))),
        (
            "far/m=cifar10:plain:test[:9]?image=a.b&label=fine=x",
            DataSpec("m", "cifar10", "plain", "test[:9]", "far", None, (("image", "a.b"), ("label", "fine=x"))),
        ),
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
        ("a.csv?", False, "behind [?] stand columns, each once"),
        ("a.csv?text", False, "behind [?] stand columns"),
        ("a.csv?words=a", False, "behind [?] stand columns"),
        ("a.csv?text=a&text=b", False, "behind [?] stand columns"),
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


def test_texts_and_paths_always_are_sources_and_values_have_a_name() -> None:
    assert parse_data("mine=a.csv") == parse_data(["mine=a.csv"]) == DataSpec("mine", "a.csv")
    assert parse_data(Path("a.csv")) == DataSpec("a", "a.csv")
    assert parse_data({"mine": "a.csv:train"}) == DataSpec("mine", "a.csv", split="train")
    values = [("good", 1), ("bad", 0)]
    for data, name in ((values, "data"), ({"mine": values}, "mine")):
        asked = parse_data(data)
        assert isinstance(asked, DataValues)
        assert (asked.name, asked.values) == (name, values)


def test_several_sets_are_a_list_of_sources_or_values_by_name() -> None:
    sources = parse_data_sets(["near/mine=a.csv", Path("cifar10")])
    assert sources == [DataSpec("mine", "a.csv", group="near"), DataSpec("cifar10", "cifar10")]
    texts, pairs = ["good", "bad"], [("good", 1)]
    asked = parse_data_sets({"texts": texts, "far/pairs": pairs, "near/file": "x=a.csv"})
    assert [(one.name, one.group) for one in asked] == [("texts", None), ("pairs", "far"), ("file", "near")]
    assert isinstance(asked[0], DataValues)
    assert asked[0].values is texts
    assert asked[2] == DataSpec("file", "a.csv", group="near")
    assert [one.name for one in parse_data_sets(pairs, "ood")] == ["ood"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["a.csv", "b=a.csv"], r"not 2: a, b; give texts as \{name: texts\}"),
        ({"a": [1], "b": [2]}, "not 2: a, b"),
        ([], "one data set is wanted here, not 0"),
        (["good", "./bad"], "no such file or folder"),
        ({"near/a": "a.csv"}, "groups are for OOD data"),
    ],
)
def test_refuses_several_sets_where_one_is_wanted(data: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_data(data)


def test_refuses_an_unknown_group_of_values() -> None:
    with pytest.raises(DataError, match="middle/a: 'middle' is no group here: use near/ or far/"):
        parse_data_sets({"middle/a": [1]})
