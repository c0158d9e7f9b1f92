import os
from contextlib import chdir
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hydractl.data.open import open_samples
from hydractl.data.reading import DataSpec, Part, parse_data, parse_data_sets, parse_data_spec, split_sources
from hydractl.errors import DataError

FILES = ("a.csv", "odd:name.csv", "a=b.csv", "near=x.csv", "cifar10/validation.parquet", "train.csv", "what?.csv",
         "two words/x y.csv", "two words/50%1/2", "two words/classes.txt")  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cifar10", "deep/sst2", "C:", "two words/50%1"):
        Path(name).mkdir(parents=True)
    for name in FILES:
        Path(name).write_text("text\nhello\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.csv", DataSpec("a", "a.csv")),
        ("a.csv:train", DataSpec("a", "a.csv", split="train")),
        ("a.csv?text=title,content", DataSpec("a", "a.csv", columns=(("text", "title,content"),))),
        (
            "far/m=cifar10:plain:test[:9]?image=a.b&label=fine=x",
            DataSpec("m", "cifar10", "plain", "test[:9]", "far", None, (("image", "a.b"), ("label", "fine=x"))),
        ),
        ("near/mine=a.csv", DataSpec("mine", "a.csv", group="near")),
        ("cifar10:plain:train[:10%]", DataSpec("cifar10", "cifar10", "plain", "train[:10%]")),
        ("cifar10:[:100]", DataSpec("cifar10", "cifar10", split="[:100]")),
        ("cifar10:a[1:2]+b[3:4]", DataSpec("cifar10", "cifar10", split="a[1:2]+b[3:4]")),
        ("cifar10/validation.parquet", DataSpec("cifar10", "cifar10/validation.parquet")),
        ("deep/sst2", DataSpec("sst2", "deep/sst2")),
        ("odd:name.csv", DataSpec("odd:name", "odd:name.csv")),
        ("odd:name.csv:train", DataSpec("odd:name", "odd:name.csv", split="train")),
        ("a=b.csv", DataSpec("a=b", "a=b.csv")),
        ("near=x.csv", DataSpec("near=x", "near=x.csv")),
        ("glue:sst2:validation", DataSpec("glue", "glue", "sst2", "validation")),
        ("owner/name", DataSpec("name", "owner/name")),
        ("far/textures=owner/name:test", DataSpec("textures", "owner/name", split="test", group="far")),
        ("glue:sst2:", DataSpec("glue", "glue", "sst2")),
        ("near=x.csv?text=a", DataSpec("near=x", "near=x.csv", columns=(("text", "a"),))),
        ("a=b.csv%1/2", DataSpec("a=b", "a=b.csv", part=Part(1, 1, 2))),
    ],
)
def test_reads_every_spelling(text: str, expected: DataSpec) -> None:
    assert parse_data_spec(text, grouped=True) == expected


def test_home_is_expanded_where_the_shell_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_data_spec("x=~/a.csv") == DataSpec("x", str(tmp_path / "a.csv"))


@pytest.mark.parametrize(
    ("text", "grouped", "message"),
    [
        ("a.csv?words=a", False, "unknown or repeated columns"),
        ("a.csv?text=a&text=b", False, "unknown or repeated columns"),
        ("", False, "names no data"),
        ("x=", False, "names no data"),
        ("middle/x=a.csv", True, "use near/ or far/"),
        ("near/x=a.csv", False, "groups are for OOD data"),
        ("missing.csv", False, "no such file or folder"),
        ("D:\\data\\a.csv", False, "no such file or folder"),
        ("a:b:c:d", False, "no such file or folder"),
        ("x%0/4", False, "no such part"),
        ("x%5/4", False, "no such part"),
        ("x%3-2/4", False, "no such part"),
        ("x%1/1001", False, "no such part"),
        ("a.csv[:200]", False, r"write a.csv:\[:200\]"),
        ("near//data/a.csv", True, "write near/NAME=/data/a.csv"),
        ("far/a.csv", True, "write far/NAME=a.csv"),
        ("near/", True, "write near/NAME=SOURCE"),
    ],
)
def test_refuses(text: str, grouped: bool, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_data_spec(text, grouped)


def parts() -> st.SearchStrategy[Part]:
    return st.integers(1, 9).flatmap(
        lambda last: st.builds(Part, st.integers(1, last), st.just(last), st.integers(last, 12), st.integers(0, 3))
    )


NAMES = st.from_regex(r"\A[\w][\w .%@-]{0,6}\Z")
SPLITS = st.sampled_from(("train", "test[:9]", "a[1:2]+b[3:4]", "[:100]", "train[:10%]"))
COLUMNS = st.sets(st.sampled_from(("text", "image", "label"))).flatmap(
    lambda kinds: st.tuples(*(st.tuples(st.just(kind), st.sampled_from(("a.b", "x,y", "fine=x"))) for kind in kinds))
)
PLACES = st.sampled_from((*FILES, "cifar10", "deep/sst2", "C:", "owner/name", "glue"))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_source_reads_what_it_writes_here_and_from_another_folder(tmp_path: Path, data: st.DataObject) -> None:
    spec = parse_data_spec(data.draw(PLACES))
    named = data.draw(st.none() | NAMES)
    config, split = data.draw(st.sampled_from((None, "plain"))), data.draw(st.none() | SPLITS)
    group = data.draw(st.sampled_from((None, "near", "far"))) if named else None
    spec = DataSpec(named or spec.name, spec.source, config, split, group, None, data.draw(COLUMNS))
    for part in data.draw(st.lists(parts(), max_size=2)):
        spec = spec.within(part)
    assert parse_data_spec(str(spec), grouped=True) == spec
    folder = data.draw(st.sampled_from(("two words", "deep/sst2", "cifar10")))
    there = str(spec.seen_from(folder))
    assert parse_data_spec(there, grouped=True, here=folder) == spec
    with chdir(folder):
        moved = parse_data_spec(there, grouped=True)
        assert os.path.exists(moved.source) == (spec.source not in {"owner/name", "glue"})
        assert (moved.name, moved.split, moved.part, moved.columns) == (spec.name, spec.split, spec.part, spec.columns)


def test_a_list_of_sources_is_divided_at_commas_but_not_between_columns() -> None:
    assert split_sources("a.csv?text=title,content&label=x,cifar10,glue:sst2:test") == [
        "a.csv?text=title,content&label=x", "cifar10", "glue:sst2:test",
    ]  # fmt: skip


def test_texts_and_paths_always_are_sources_and_values_have_a_name() -> None:
    assert parse_data("mine=a.csv") == parse_data(["mine=a.csv"]) == DataSpec("mine", "a.csv")
    assert parse_data(Path("a.csv")) == DataSpec("a", "a.csv")
    assert parse_data({"mine": "a.csv:train"}) == DataSpec("mine", "a.csv", split="train")
    values = [("good", 1), ("bad", 0)]
    for data, name in ((values, "data"), ({"mine": values}, "mine")):
        asked = parse_data(data)
        assert (asked.name, asked.values) == (name, values)


def test_several_sets_are_a_list_of_sources_or_values_by_name() -> None:
    sources = parse_data_sets(["near/mine=a.csv", Path("cifar10")])
    assert sources == [DataSpec("mine", "a.csv", group="near"), DataSpec("cifar10", "cifar10")]
    texts, pairs = ["good", "bad"], [("good", 1)]
    asked = parse_data_sets({"texts": texts, "far/pairs": pairs, "near/file": "x=a.csv"})
    assert [(one.name, one.group) for one in asked] == [("texts", None), ("pairs", "far"), ("file", "near")]
    assert asked[0].values is texts
    assert asked[2] == DataSpec("file", "a.csv", group="near")
    assert [one.name for one in parse_data_sets(pairs, "ood")] == ["ood"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["a.csv", "b=a.csv"], r"got 2: a, b; give texts as \{name: texts\}"),
        ({"a": [1], "b": [2]}, "got 2: a, b"),
        ([], "expected one data set, got 0"),
        (["good", "./bad"], "no such file or folder"),
        ({"near/a": "a.csv"}, "groups are for OOD data"),
    ],
)
def test_refuses_several_sets_where_one_is_wanted(data: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_data(data)


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
    before, behind = (parse_data_spec(f"{table}{rest}") for rest in ("%1/2%2/3?text=text", "%1/2?text=text%2/3"))
    assert before == behind and str(behind) == f"{table}%1/2%2/3?text=text"


def test_a_part_that_is_empty(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text\nalone\n")
    with pytest.raises(DataError, match="the data has 1 samples"):
        [texts(f"{tmp_path / 'one.csv'}%{i}/2") for i in (1, 2)]
