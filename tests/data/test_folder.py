"""Folders of data: one look through them finds what the `datasets` library finds in sixty, however much lies there."""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from datasets.data_files import get_data_patterns, resolve_pattern
from hypothesis import given, settings
from hypothesis import strategies as st

from hydractl.data import card, folder
from hydractl.data.folder import look, splits_by_name
from hydractl.data.open import open_samples
from hydractl.errors import DataError

ROW = "text,label\na,0\n"
PARTS = st.lists(
    st.sampled_from(("train", "test", "dev", "valid", "x", "mytest", "data", "-", "_", " ", "1")),
    min_size=1,
    max_size=3,
)
NAMES = st.lists(PARTS.map("".join), min_size=1, max_size=3).map(lambda parts: "/".join(parts) + ".csv")
SHARDS = st.sampled_from(
    [f"data/{split}-0000{at}-of-00002.csv" for split in ("train", "mine", "test") for at in range(2)]
)


def theirs(place: Path) -> dict[str, set[str]]:
    patterns = get_data_patterns(str(place))
    found: dict[str, set[str]] = {}
    for split, some in patterns.items():
        for pattern in some:
            try:
                found.setdefault(str(split), set()).update(resolve_pattern(pattern, str(place)))
            except FileNotFoundError:
                continue
    return {split: {os.path.relpath(file, place) for file in files} for split, files in found.items()}


@settings(max_examples=25, deadline=None, derandomize=True)
@given(names=st.lists(NAMES | SHARDS, min_size=1, max_size=5, unique=True))
def test_splits_are_those_of_the_library(names: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("data")
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    found = splits_by_name(look(place).files)
    assert {split: set(files) for split, files in found.items()} == theirs(place)
    assert all(files == sorted(files) for files in found.values())


@pytest.fixture
def crowd(tmp_path: Path) -> Path:
    """One file of data among three thousand others."""
    for at in range(3000):
        (tmp_path / f"{at}.xml").touch()
    (tmp_path / "a.csv").write_text(ROW)
    return tmp_path


@pytest.mark.parametrize("said", ["", "---\nconfigs:\n- config_name: default\n  data_files: '*.csv'\n---\n"])
def test_one_file_among_very_many_is_found_at_once(said: str, crowd: Path) -> None:
    if said:
        (crowd / "README.md").write_text(said)
    start = time.process_time()
    assert open_samples(str(crowd), "text").inputs == ["a"]
    assert time.process_time() - start < 2


def test_patterns_that_take_for_ever_are_refused(crowd: Path) -> None:
    patterns = "\n".join(f"  - '**/{at}*'" for at in range(120))
    (crowd / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  data_files:\n{patterns}\n---\n")
    with pytest.raises(DataError, match=r"its card names too many patterns for 300\d files: name a file instead"):
        open_samples(str(crowd), "text")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "FILES", 2)
    for name in ("a.csv", "b.xml", ".c"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match="holds more than 2 files: name one of them, or a folder below"):
        open_samples(str(tmp_path), "text")


def test_folders_within_folders_are_walked_not_recursed_into(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 200)
    deep.mkdir(parents=True)
    (deep / "a.csv").touch()
    allowed = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        assert look(tmp_path).files == ("d/" * 200 + "a.csv",)
    finally:
        sys.setrecursionlimit(allowed)


def test_a_link_to_itself_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ROW)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "up").symlink_to("..")
    assert open_samples(str(tmp_path), "text").inputs == ["a"]


def test_what_only_says_something_of_the_data_is_none(tmp_path: Path) -> None:
    for name in ("dataset_infos.json", "deep/config.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    with pytest.raises(DataError, match="holds nothing that can be read as data"):
        open_samples(str(tmp_path), "text")
    (tmp_path / "a.csv").write_text(ROW)
    assert open_samples(str(tmp_path), "text").inputs == ["a"]


@pytest.mark.parametrize(
    ("files", "asked", "message"),
    [
        (
            ("train.csv", "test.jsonl"),
            "train",
            "its splits hold files of different kinds .train: csv, test: json.: name",
        ),
        (("a.csv", "b.tsv"), "train", "holds .csv and .tsv files: name one of them"),
        (("a.csv",), "mine:train", "has no configuration 'mine'"),
    ],
)
def test_refuses_a_folder(files: Sequence[str], asked: str, message: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).write_text(ROW)
    with pytest.raises(DataError, match=message):
        open_samples(f"{tmp_path}:{asked}", "text")


TWO = [{"config_name": "one", "data_files": "1/*"}, {"config_name": "two", "data_dir": "2"}]
ONE = [{"config_name": "only", "data_files": [{"split": "mine", "path": ["1/*.csv", "2/test.csv"]}]}]


@pytest.mark.parametrize(
    ("configs", "asked", "found"),
    [
        (TWO, "one:train", ["1"]),
        (TWO, "two:test", ["2"]),
        ([TWO[0], {**TWO[1], "default": True}], "test", ["2"]),
        (ONE, "mine", ["1", "2"]),
        (ONE, "only:mine[1:]", ["2"]),
        (TWO, "train", "has the configurations one, two: name one, as in .*:one:train"),
        (TWO, "three:train", "has no configuration 'three', only one, two"),
        (
            [{"config_name": "default", "data_files": "gone.csv"}],
            "train",
            "its card names gone.csv, which is not there",
        ),
        ([{"config_name": "default", "data_files": "gone*"}], "train", "its card names no file that is there"),
        ([{"config_name": "default", "data_files": 1}], "train", "data_files: should be a text, or a list"),
        (
            [{"config_name": "a", "data_files": [{"split": 5, "path": "1"}]}],
            "train",
            "data_files: should be a text, or",
        ),
        ([5], "train", "its card, a configuration: is 5, should be an object: mend it"),
        ([{"config_name": "a", "data_dir": 5}], "train", "its card, a configuration: data_dir is 5, should be"),
        ([{"config_name": "default", "data_dir": "gone"}], "train", "its card names no file that is there"),
    ],
)
def test_configurations_of_a_card(
    configs: Sequence[object], asked: str, found: list[str] | str, tmp_path: Path
) -> None:
    for name in ("1/x.csv", "2/test.csv"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(ROW.replace("a,", f"in {name[0]},"))
    # YAML reads JSON.
    (tmp_path / "README.md").write_text(f"---\nconfigs: {str(list(configs)).replace('True', 'true')}\n---\n")
    if isinstance(found, list):
        assert list(open_samples(f"{tmp_path}:{asked}", "text").inputs) == [f"in {one}" for one in found]
        return
    with pytest.raises(DataError, match=found):
        open_samples(f"{tmp_path}:{asked}", "text")


@pytest.mark.parametrize("place", ["README.md", "dataset_infos.json"])
def test_a_card_names_the_classes(place: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ROW)
    # YAML reads JSON.
    listed = (
        '[{"name": "text", "dtype": "string"}, {"name": "label", "dtype": {"class_label": {"names": ["cat", "dog"]}}}]'
    )
    said = f'---\ndataset_info: {{"features": {listed}}}\n---\n'
    if place == "dataset_infos.json":
        names = '{"names": ["cat", "dog"], "_type": "ClassLabel"}'
        said = f'{{"default": {{"features": {{"text": {{"dtype": "string", "_type": "Value"}}, "label": {names}}}}}}}'
    (tmp_path / place).write_text(said)
    assert open_samples(str(tmp_path), "text").label_names == ("cat", "dog")


def test_a_folder_without_a_card_says_nothing(tmp_path: Path) -> None:
    assert card.read_card(tmp_path) == card.Card({}, {})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", "---\ndataset_info: {features: [5]}\n---\n"),
        ("README.md", "---\na: [\n---\n"),
        (".huggingface.yaml", "configs: 5"),
        ("dataset_infos.json", '{"default": {"splits": {"train": 5}}}'),
    ],
)
def test_a_card_that_is_damaged_is_named_with_its_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "a.csv").write_text("text,label\nx,0\n")
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=rf"{tmp_path}: its card is not as it should be .*remove {name}$"):
        open_samples(str(tmp_path), "text")
