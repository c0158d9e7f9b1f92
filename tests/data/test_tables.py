"""One small table, read from each kind of source."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from hydractl.data.sources import parse_data_spec
from hydractl.data.tables import open_table
from hydractl.errors import DataError
from tests.data.conftest import image_folder, image_table, picture

ROWS = [{"text": "hello", "label": 0}, {"text": "NA", "label": 1}, {"text": 'say "hi", now', "label": 0}]


def table() -> datasets.Dataset:
    return datasets.Dataset.from_list(ROWS)


WRITERS: dict[str, Callable[[Path], object]] = {
    "a.csv": lambda path: table().to_csv(path),
    "a.tsv": lambda path: table().to_csv(path, sep="\t"),
    "a.jsonl": lambda path: table().to_json(path),
    "a.json": lambda path: path.write_text(json.dumps(ROWS)),
    "a.parquet": lambda path: table().to_parquet(path),
    "saved": lambda path: table().save_to_disk(path),
    "several": lambda path: datasets.DatasetDict({"train": table(), "test": table()}).save_to_disk(path),
}


def rows(text: str) -> list[dict[str, object]]:
    return open_table(parse_data_spec(text)).to_list()


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    split = ":test" if name == "several" else ""
    assert rows(f"{tmp_path / name}{split}") == ROWS


def test_an_arrow_file(tmp_path: Path) -> None:
    table().save_to_disk(tmp_path / "saved")
    assert rows(str(next((tmp_path / "saved").glob("*.arrow")))) == ROWS


def test_magic_characters_in_a_name(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "a[1]=b:c*.csv")
    assert rows(str(tmp_path / "a[1]=b:c*.csv")) == ROWS


def test_a_webdataset_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for key in range(2):
            buffer = io.BytesIO()
            picture(key).save(buffer, "PNG")
            for name, content in ((f"{key}.png", buffer.getvalue()), (f"{key}.cls", b"%d" % key)):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    read = open_table(parse_data_spec(str(tmp_path / "a.tar")))
    assert read["cls"][:] == [0, 1]
    assert read["png"][1].tobytes() == picture(1).tobytes()


def folder_of_splits(root: Path) -> Path:
    for split, count in (("train", 4), ("validation", 2)):
        image_table(count).to_parquet(root / f"{split}-00000-of-00001.parquet")
    return root


def test_a_folder_of_parquet_files_has_splits_and_class_names(tmp_path: Path) -> None:
    read = open_table(parse_data_spec(f"{folder_of_splits(tmp_path)}:validation"))
    assert len(read) == 2
    assert read.features["label"].names == ["cat", "dog"]


def test_only_the_split_asked_for_is_read(tmp_path: Path) -> None:
    (folder_of_splits(tmp_path) / "train-00000-of-00001.parquet").write_bytes(b"damaged")
    assert len(open_table(parse_data_spec(f"{tmp_path}:val"))) == 2


@pytest.mark.parametrize(
    ("split", "labels"),
    [
        ("train[1:3]", [1, 0]),
        ("train[-1:]", [1]),
        ("train[:50%]", [0, 1]),
        ("validation+train[:1]", [0, 1, 0]),
        ("dev[:1]", [0]),
    ],
)
def test_slices_and_sums_of_splits(split: str, labels: list[int], tmp_path: Path) -> None:
    read = open_table(parse_data_spec(f"{folder_of_splits(tmp_path)}:{split}"))
    assert read["label"][:] == labels


def test_a_slice_of_the_only_split(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "a.csv")
    assert rows(f"{tmp_path / 'a.csv'}:[1:]") == ROWS[1:]


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("", "holds the splits train, validation: name one"),
        (":test", "has no split 'test', only train, validation"),
        (":[:2]", "name one"),
        (":train[x]", "is no slice"),
    ],
)
def test_refuses_a_split(split: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        open_table(parse_data_spec(f"{folder_of_splits(tmp_path)}{split}"))


def labels_by_file(text: str) -> list[tuple[str, str | None]]:
    read = open_table(parse_data_spec(text)).cast_column("image", datasets.Image(decode=False))
    names = read.features["label"].names if "label" in read.features else None
    return [(Path(row["image"]["path"]).name, names[row["label"]] if names else None) for row in read]


def test_class_folders_in_the_order_of_their_names(tmp_path: Path) -> None:
    image_folder(tmp_path, ["dog/a.png", "cat/b.JPG", "cat/deep/c.png", "cat/.hidden.png"])
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    assert labels_by_file(str(tmp_path)) == [("b.JPG", "cat"), ("c.png", "cat"), ("a.png", "dog")]


def test_a_class_named_like_a_split_is_a_class(tmp_path: Path) -> None:
    image_folder(tmp_path, ["test/a.png", "bus/b.png", "train/c.png"])
    assert labels_by_file(str(tmp_path)) == [("b.png", "bus"), ("a.png", "test"), ("c.png", "train")]


def test_split_folders(tmp_path: Path) -> None:
    image_folder(tmp_path, ["train/cat/a.png", "val/dog/b.png", "val/cat/c.png"])
    assert labels_by_file(f"{tmp_path}:validation") == [("c.png", "cat"), ("b.png", "dog")]


@pytest.mark.parametrize("names", [["a.png", "test_b.png"], ["cat/a.png", "test_b.png"]])
def test_images_beside_class_folders_have_no_labels_and_none_is_lost(names: list[str], tmp_path: Path) -> None:
    image_folder(tmp_path, names)
    assert labels_by_file(str(tmp_path)) == [("a.png", None), ("test_b.png", None)]


def test_a_metadata_table_names_the_images(tmp_path: Path) -> None:
    image_folder(tmp_path, ["a.png", "b.png"])
    (tmp_path / "metadata.csv").write_text("file_name,label\na.png,cat\nb.png,dog\n")
    assert open_table(parse_data_spec(str(tmp_path)))["label"][:] == ["cat", "dog"]


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "a.json", "a.arrow", "a.tar"])
@pytest.mark.parametrize("content", [b"", b'"a\n{"a":'])
def test_a_damaged_file_is_one_line(name: str, content: bytes, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}: ") as caught:
        open_table(parse_data_spec(str(tmp_path / name)))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_an_unknown_ending_and_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").touch()
    with pytest.raises(DataError, match="no data file of a known kind"):
        open_table(parse_data_spec(str(tmp_path / "a.pkl")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds nothing that can be read as data: give images or .parquet"):
        open_table(parse_data_spec(str(tmp_path / "empty")))


def test_the_hub_out_of_reach_is_one_line() -> None:
    with pytest.raises(DataError, match="no file or folder here, and the hub cannot be asked") as caught:
        open_table(parse_data_spec("nobody/nothing:test"))
    assert "\n" not in str(caught.value)


class Hub:
    """Stands in for the two questions asked of the hub: the files named are local, the way through is the real one."""

    name = "parquet"
    info = datasets.DatasetInfo()

    def __init__(self, files: dict[str, list[str]]) -> None:
        self.config = type("Config", (), {"data_files": files})


@pytest.mark.parametrize("asked", ["glue:sst2:validation", "glue:sst2"])
def test_a_hub_id_names_configuration_and_split(asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table().to_parquet(tmp_path / "a.parquet")
    asked_for = []

    def builder(source: str, name: str | None) -> Hub:
        asked_for.append((source, name))
        return Hub({"validation": [str(tmp_path / "a.parquet")]})

    monkeypatch.setattr("hydractl.data.tables._check_reachable", lambda source: None)
    monkeypatch.setattr("hydractl.data.tables.HUB", str(tmp_path))
    monkeypatch.setattr(datasets, "load_dataset_builder", builder)
    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda source: ["cola", "sst2"])
    assert rows(asked) == ROWS
    assert asked_for == [("glue", "sst2")]
