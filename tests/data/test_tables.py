import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import datasets
import pytest
from PIL import Image

from hydractl.data.hashes import image_hash
from hydractl.data.open import open_samples
from hydractl.data.reading import parse_data_spec
from hydractl.data.tables import open_table
from hydractl.errors import DataError
from tests.data.conftest import Hub, image_folder, image_table, picture

ROWS = [{"text": "hello", "label": 0}, {"text": "NA", "label": 1}, {"text": 'say "hi", now', "label": 0}]
ROW = "text,label\na,0\n"


WRITTEN = [{**row, "label": str(row["label"])} for row in ROWS]  # as text files hold it


def table() -> datasets.Dataset:
    return datasets.Dataset.from_list(ROWS)


WRITERS: dict[str, Callable[[Path], object]] = {
    "a.csv": lambda path: table().to_csv(path),
    "a.tsv": lambda path: table().to_csv(path, sep="\t"),
    "a.jsonl": lambda path: table().to_json(path),
    "a.json": lambda path: path.write_text(json.dumps(ROWS)),
    "a.parquet": lambda path: table().to_parquet(path),
    "a[1]=b:c*.csv": lambda path: table().to_csv(path),
    "saved": lambda path: table().save_to_disk(path),
    "several": lambda path: datasets.DatasetDict({"train": table(), "test": table()}).save_to_disk(path),
}


def rows(text: str) -> list[dict[str, object]]:
    return open_table(parse_data_spec(text)).to_list()


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    split = ":test" if name == "several" else ""
    assert rows(f"{tmp_path / name}{split}") == (WRITTEN if name.endswith(("csv", "tsv", "jsonl")) else ROWS)
    if name == "saved":
        assert rows(str(next((tmp_path / "saved").glob("*.arrow")))) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "row"),
    [
        ("a.conll", "-DOCSTART- O\n\nEU B-ORG\nx O\n", {"tokens": ["EU", "x"], "tags": ["B-ORG", "O"]}),
        ("texts/test.txt", "good film\n", {"text": "good film"}),
        ("a.jsonl", '\n{"text": "good film"}\n', {"text": "good film"}),
    ],
)
def test_a_byte_order_mark_is_no_text(name: str, content: str, row: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content, encoding="utf-8-sig")
    assert rows(str(tmp_path / name).removesuffix("/test.txt")) == [row]


def folder_of_splits(root: Path) -> Path:
    for split, count in (("train", 4), ("validation", 2)):
        image_table(count).to_parquet(root / f"{split}-00000-of-00001.parquet")
    return root


def test_only_the_split_asked_for_is_read(tmp_path: Path) -> None:
    (folder_of_splits(tmp_path) / "train-00000-of-00001.parquet").write_bytes(b"damaged")
    read = open_table(parse_data_spec(f"{tmp_path}:val"))
    assert len(read) == 2
    assert read.features["label"].names == ["cat", "dog"]


@pytest.mark.parametrize(
    ("split", "labels"),
    [
        ("train[1:3]", [1, 0]),
        ("train[-1:]", [1]),
        ("train[:50%]", [0, 1]),
        ("validation+train[:1]", [0, 1, 0]),
        ("dev[:1]", [0]),
        ("", "holds the splits train, validation: name one"),
        ("test", "has no split 'test', only train, validation"),
        ("[:2]", "name one"),
        ("train[x]", "is not a slice"),
    ],
)
def test_slices_and_sums_of_splits(split: str, labels: list[int] | str, tmp_path: Path) -> None:
    spec = parse_data_spec(f"{folder_of_splits(tmp_path)}:{split}")
    if isinstance(labels, list):
        assert open_table(spec)["label"][:] == labels
        return
    with pytest.raises(DataError, match=labels):
        open_table(spec)


def labels_by_file(text: str) -> list[tuple[str, str | None]]:
    read = open_table(parse_data_spec(text)).cast_column("image", datasets.Image(decode=False))
    names = read.features["label"].names if "label" in read.features else None
    return [(Path(row["image"]["path"]).name, names[row["label"]] if names else None) for row in read]


@pytest.mark.parametrize(
    ("names", "split", "found"),
    [
        # Classes in the order of their names, files in that of their paths; hidden ones are left out.
        (
            ["dog/a.png", "cat/b.JPG", "cat/deep/c.png", "cat/.hidden.png"],
            "",
            [("b.JPG", "cat"), ("c.png", "cat"), ("a.png", "dog")],
        ),
        # A class named like a split is a class.
        (["test/a.png", "bus/b.png", "train/c.png"], "", [("b.png", "bus"), ("a.png", "test"), ("c.png", "train")]),
        (["train/cat/a.png", "val/dog/b.png", "val/cat/c.png"], ":validation", [("c.png", "cat"), ("b.png", "dog")]),
        # Images beside class folders have no labels, and none is lost.
        (["cat/a.png", "test_b.png"], "", [("a.png", None), ("test_b.png", None)]),
    ],
)
def test_folders_of_images(names: list[str], split: str, found: list[tuple[str, str | None]], tmp_path: Path) -> None:
    image_folder(tmp_path, names)
    next(tmp_path.rglob("*.png")).with_name("notes.txt").write_text("no image")
    assert labels_by_file(f"{tmp_path}{split}") == found


def test_folders_of_one_name_in_two_unicode_forms_are_one_class(tmp_path: Path) -> None:
    image_folder(tmp_path, ["cafe\u0301/a.png", "caf\u00e9/b.png", "the\u0301/c.png"])
    expected = [("a.png", "caf\u00e9"), ("b.png", "caf\u00e9"), ("c.png", "th\u00e9")]
    assert sorted(labels_by_file(str(tmp_path))) == expected
    (tmp_path / "names.csv").write_text("image,label\ncaf\u00e9/a.png,x\nth\u00e9/c.png,y\n")
    assert len(open_samples(f"{tmp_path}/names.csv", "image").content_hashes()) == 2


def test_linked_class_folders_are_followed_but_no_circle(tmp_path: Path) -> None:
    image_folder(tmp_path / "store", ["cat/a.png", "owl/deep/b.png"])
    image_folder(tmp_path / "data", ["dog/c.png"])
    for name in ("cat", "owl"):
        (tmp_path / "data" / name).symlink_to(tmp_path / "store" / name)
    (tmp_path / "store" / "owl" / "again").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "dog" / "up").symlink_to("..")
    (tmp_path / "data" / "self").symlink_to(".")
    (tmp_path / "data" / "dog" / "d.png").symlink_to(tmp_path / "store" / "cat" / "a.png")
    (tmp_path / "data" / "README.md").write_text("# a card without settings\n")
    (tmp_path / "all").symlink_to("data")
    found = [("a.png", "cat"), ("c.png", "dog"), ("d.png", "dog"), ("b.png", "owl")]
    for place in ("data", "all"):
        assert set(labels_by_file(str(tmp_path / place))) == set(found)


def test_content_decides_and_what_is_left_out_is_counted_by_class(tmp_path: Path) -> None:
    names = ["cat/a.png_large", "cat/b", "dog/c.HEIC", "dog/d.jfif", "dog/e.PNG"]
    for seed, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture(seed).save(tmp_path / name, ("PNG", "JPEG", "WEBP", "JPEG", "PNG")[seed])
    for name in ("cat/x.heic", "dog/y.avif", "dog/z.bin", "top.eps"):
        (tmp_path / name).write_bytes(b"BM, no image" if name == "dog/z.bin" else b"%!PS-Adobe-3.0 EPSF-3.0")
    samples = open_samples(str(tmp_path), "image")
    assert [Path(samples.called(place)).name for place in range(len(samples))] == [Path(name).name for name in names]
    assert len(samples.content_hashes()) == 5
    [note] = samples.notes
    assert "left out 4 files that are not PNG" in note
    assert all(part in note for part in ("1 of cat (x.heic)", "2 of dog (y.avif)", "1 of no class (top.eps)"))


@pytest.mark.parametrize("split", ["", "train/"])
def test_a_class_without_any_image_is_an_error(split: str, tmp_path: Path) -> None:
    image_folder(tmp_path, [f"{split}cat/a.png", f"{split}dog/b.png"])
    (tmp_path / f"{split}owl").mkdir()
    for number in range(2):
        (tmp_path / f"{split}owl" / f"{number}.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(DataError, match=r"in owl \(2 files\)"):
        open_table(parse_data_spec(str(tmp_path)))


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    image_folder(tmp_path, ["cat/a.png"])
    (tmp_path / "dog").symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match=f"{tmp_path / 'dog'}: cannot read"):
        open_table(parse_data_spec(str(tmp_path)))


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "a.arrow", "a.tar", "a.pkl"])
@pytest.mark.parametrize("content", [b"", b'"a\n{"a":'])
def test_a_damaged_file_is_one_line(name: str, content: bytes, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}: "):
        open_table(parse_data_spec(str(tmp_path / name)))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("files", "split", "message"),
    [
        ((), "", "holds no readable data: give images or .parquet"),
        (("train.csv", "test.jsonl"), ":train", "infer the same data file format for all splits"),
        (("a.csv", "b.tsv"), ":train", "holds .csv and .tsv files: name one of them"),
        (("a.csv",), ":mine:train", "mine"),
        (("a.xml",), ":train", "holds xml files, which are not supported: give images or .parquet"),
        (("a.csv", "README.md"), "", "cannot be read as a data set"),
    ],
)
def test_refuses_a_folder(files: Sequence[str], split: str, message: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).write_text("---\na: [\n---\n" if name == "README.md" else ROW)
    with pytest.raises(DataError, match=message):
        open_table(parse_data_spec(f"{tmp_path}{split}"))


TWO = [{"config_name": "one", "data_files": "1/*"}, {"config_name": "two", "data_dir": "2"}]


@pytest.mark.parametrize(("split", "found"), [("one", "1"), ("two:test", "2")])
def test_configurations_of_a_card(split: str, found: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for name in ("1/x.csv", "2/test.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(ROW.replace("a,", f"in {name[0]},"))
    (folder / "README.md").write_text(f"---\nconfigs: {json.dumps(TWO)}\n---\n")  # YAML reads JSON
    assert [row["text"] for row in rows(f"{folder}:{split}")] == [f"in {found}"]


def test_the_hub_out_of_reach_is_one_line() -> None:
    with pytest.raises(DataError, match="the hub does not provide"):
        rows("nobody/nothing:test")


@pytest.mark.parametrize("spec", ["glue:sst2:validation", "glue:sst2"])
def test_a_hub_id_names_configuration_and_split(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table().to_parquet(tmp_path / "a.parquet")
    hub = Hub({"validation": [str(tmp_path / "a.parquet")]})
    hub.stand_in(monkeypatch, tmp_path, ("cola", "sst2"))
    assert rows(spec) == ROWS
    assert hub.requests == [("glue", "sst2")]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """An image in another folder."""
    (tmp_path / "other").mkdir()
    picture(7).save(tmp_path / "other" / "7.png")
    return tmp_path / "other" / "7.png"


def image_paths(path: Path, *names: object) -> None:
    features = datasets.Features({"image": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}})
    rows = [{"image": {"bytes": None, "path": str(name)}} for name in names]
    datasets.Dataset.from_list(rows, features=features).to_parquet(path)


def test_a_table_names_images_by_relative_or_absolute_paths(tmp_path: Path, elsewhere: Path) -> None:
    folder = image_folder(tmp_path / "data", ["sub/0.png"])
    names = ["sub/0.png", "../other/7.png", elsewhere]
    (folder / "a.csv").write_text("\n".join(["image", *map(str, names)]) + "\n")
    image_paths(folder / "a.parquet", *names)
    expected = [image_hash(picture(seed)) for seed in (0, 7, 7)]
    for table in ("a.csv", "a.parquet"):
        assert open_samples(str(folder / table), "image").content_hashes().tolist() == expected


def test_a_data_set_of_the_hub_names_no_file_of_this_machine(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "data").mkdir()
    Hub({"train": [f"{folder}/x.csv", str(elsewhere)]}).stand_in(monkeypatch, folder)
    with pytest.raises(DataError, match="a/b: .*7.png"):
        rows("a/b")
    image_paths(folder / "a.parquet", elsewhere)
    Hub({"train": [f"{folder}/a.parquet"]}).stand_in(monkeypatch, folder)
    with pytest.raises(DataError, match="outside the download"):
        open_samples("a/b", "image").content_hashes()


def test_no_program_is_started_for_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "data").mkdir()
    programs, started = tmp_path / "bin", tmp_path / "started"
    programs.mkdir()
    (programs / "gs").write_text(f"#!/bin/sh\ntouch {started}\n")
    (programs / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # looked for anew
    (folder / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    )
    with suppress(Exception):  # Pillow left to itself starts it, and fails for want of a drawing
        Image.open(folder / "a.png").load()
    assert started.exists()
    started.unlink()
    with pytest.raises(DataError, match=r"a.png\): .*not one of"):
        open_samples(str(folder), "image").content_hashes()
    assert not started.exists()
