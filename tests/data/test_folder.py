"""Folders of data, as the `datasets` library reads them: splits, configurations, and what a card says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from hydractl.data.files import files_below
from hydractl.data.open import open_samples
from hydractl.errors import DataError

ROW = "text,label\na,0\n"


def test_files_below_are_in_order_and_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    for name in ("b/x.PNG", "a/deep/y.png", "a/.hidden.png", ".git/z.png", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "up").symlink_to("..")
    assert [str(path) for path in files_below(tmp_path, {".png"})] == ["a/deep/y.png", "b/x.PNG"]


def test_what_only_says_something_of_the_data_is_none(tmp_path: Path) -> None:
    (tmp_path / "dataset_infos.json").write_text("{}")
    with pytest.raises(DataError, match="holds nothing that can be read as data: give images or .parquet"):
        open_samples(str(tmp_path), "text")
    (tmp_path / "a.csv").write_text(ROW)
    assert open_samples(str(tmp_path), "text").inputs == ["a"]


@pytest.mark.parametrize(
    ("files", "asked", "message"),
    [
        (("train.csv", "test.jsonl"), "train", "infer the same data file format for all splits"),
        (("a.csv", "b.tsv"), "train", "holds .csv and .tsv files: name one of them"),
        (("a.csv",), "mine:train", "mine"),
        (("a.xml",), "train", "holds xml files, which are not read: give images or .parquet"),
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
        (TWO, "one", ["1"]),
        (TWO, "two:test", ["2"]),
        ([TWO[0], {**TWO[1], "default": True}], "test", ["2"]),
        (ONE, "mine", ["1", "2"]),
        (ONE, "only:mine[1:]", ["2"]),
        (TWO, "train", r"Please pick one among the available configs: \['one', 'two'\]"),
        (TWO, "three:train", "three.* not found"),
        ([{"config_name": "default", "data_files": "gone.csv"}], "train", "gone.csv"),
        ([{"config_name": "default", "data_files": "../elsewhere.csv"}], "train", "data comes from its own folder"),
    ],
)
def test_configurations_of_a_card(
    configs: Sequence[object], asked: str, found: list[str] | str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    for name in ("1/x.csv", "2/test.csv", "../elsewhere.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(ROW.replace("a,", f"in {name[0]},"))
    (folder / "README.md").write_text(f"---\nconfigs: {json.dumps(list(configs))}\n---\n")  # YAML reads JSON
    if isinstance(found, list):
        assert list(open_samples(f"{folder}:{asked}", "text").inputs) == [f"in {one}" for one in found]
        return
    with pytest.raises(DataError, match=found) as caught:
        open_samples(f"{folder}:{asked}", "text")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["README.md", "dataset_infos.json"])
def test_a_card_names_the_classes(place: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ROW)
    listed = (
        '[{"name": "text", "dtype": "string"}, {"name": "label", "dtype": {"class_label": {"names": ["cat", "dog"]}}}]'
    )
    said = f'---\ndataset_info: {{"features": {listed}}}\n---\n'
    if place == "dataset_infos.json":
        names = '{"names": ["cat", "dog"], "_type": "ClassLabel"}'
        said = f'{{"default": {{"features": {{"text": {{"dtype": "string", "_type": "Value"}}, "label": {names}}}}}}}'
    (tmp_path / place).write_text(said)
    assert open_samples(str(tmp_path), "text").label_names == ("cat", "dog")


@pytest.mark.parametrize("text", ["---\ndataset_info: {features: [5]}\n---\n", "---\na: [\n---\n"])
def test_a_damaged_card_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(ROW)
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(DataError, match=f"^{tmp_path}: cannot be read as a data set") as caught:
        open_samples(str(tmp_path), "text")
    assert "\n" not in str(caught.value)
