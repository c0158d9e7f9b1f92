"""Data from strangers: nothing but regular files of their own folder is opened, and no program is started for it."""

from __future__ import annotations

import os
import socket
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import datasets
import pytest
from PIL import Image
from transformers import ViTImageProcessor

from hydractl.data.classes import read_classes
from hydractl.data.hashes import image_hash
from hydractl.data.open import open_samples
from hydractl.data.preprocessing import ImagePreprocessor
from hydractl.data.spec import DataSpec
from hydractl.data.tables import HUB, open_table
from hydractl.errors import DataError
from tests.data.conftest import image_folder, image_table, picture
from tests.data.test_tables import Hub
from tests.hostile import within_limits


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Files of the user's that no data set may name."""
    folder = tmp_path / "private"
    folder.mkdir()
    picture(7).save(folder / "secret.png")
    (folder / "secret.csv").write_text("text,label\nsecret,0\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data set from a stranger."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def bind_socket(path: Path) -> None:
    # Its name may have 108 characters, and folders of tests have long names.
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


SPECIAL = pytest.mark.parametrize(
    ("make", "kind"), [(fifo, "a pipe"), (link_to_device, "a device"), (bind_socket, "a socket")]
)


@SPECIAL
@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.jsonl", "folder"])
def test_a_source_that_is_no_file_is_refused_unread(
    make: Callable[[Path], None], kind: str, name: str, folder: Path
) -> None:
    make(folder / name)
    with pytest.raises(DataError, match=f"{name}: is {kind}: name a file or a folder"):
        open_samples(str(folder / name), "text")


@SPECIAL
@pytest.mark.parametrize("name", ["train.csv", "README.md", ".huggingface.yaml", "deep/state.json"])
def test_nor_is_one_in_a_folder(make: Callable[[Path], None], kind: str, name: str, folder: Path) -> None:
    (folder / "test.csv").write_text("text,label\na,0\n")
    (folder / name).parent.mkdir(exist_ok=True)
    make(folder / name)
    with pytest.raises(DataError, match=f"{name}: is {kind}"):
        open_samples(f"{folder}:test", "text")


@SPECIAL
def test_nor_in_a_saved_data_set(make: Callable[[Path], None], kind: str, folder: Path) -> None:
    image_table(2).save_to_disk(folder)
    next(folder.glob("*.arrow")).unlink()
    make(folder / "data-00000-of-00001.arrow")
    with pytest.raises(DataError, match=f"arrow: is {kind}"):
        open_samples(str(folder), "image")


@SPECIAL
def test_nor_an_image_among_images(make: Callable[[Path], None], kind: str, folder: Path) -> None:
    image_folder(folder, ["cat/0.png", "dog/1.png"])
    make(folder / "cat" / "2.png")
    with pytest.raises(DataError, match=rf"sample 1 \(.*2.png\): unreadable image: is {kind}: repair or remove it"):
        open_samples(str(folder), "image").content_hashes()
    assert len(open_samples(str(folder), "image", skip_bad=True)) == 2


@SPECIAL
def test_nor_a_file_of_class_names(make: Callable[[Path], None], kind: str, folder: Path) -> None:
    make(folder / "classes.txt")
    with pytest.raises(DataError, match=f"classes.txt: is {kind}: name a file"):
        read_classes(folder / "classes.txt")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("state.json", '{{"_data_files": [{{"filename": "{name}"}}]}}'),
        ("train/state.json", '{{"_data_files": [{{"filename": "{name}"}}]}}'),
        ("dataset_dict.json", '{{"splits": ["{name}"]}}'),
    ],
)
@pytest.mark.parametrize("name", ["../private", "{private}", "a/../../private/x.arrow", "https://a.b/c"])
def test_a_saved_data_set_names_its_own_files(file: str, said: str, name: str, folder: Path, elsewhere: Path) -> None:
    datasets.DatasetDict({"train": image_table(2)}).save_to_disk(folder)
    if file == "state.json":
        image_table(2).save_to_disk(folder)
        (folder / "dataset_dict.json").unlink()
    (folder / file).write_text(said.format(name=name.format(private=elsewhere)))
    image_table(2).save_to_disk(elsewhere)
    with pytest.raises(DataError, match=f"{Path(file).name} names .*: data comes from the folder only"):
        open_samples(f"{folder}:train", "image")


def test_links_to_files_elsewhere_are_followed(folder: Path, elsewhere: Path) -> None:
    (folder / "a.png").symlink_to(elsewhere / "secret.png")
    (folder / "b.png").symlink_to(elsewhere / "gone.png")
    kept = open_samples(str(folder), "image", skip_bad=True)
    assert kept.content_hashes().tolist() == [image_hash(picture(7))]
    assert "No such file" in kept.skipped[0]


CARDS = (
    "data_files: {}",
    "data_files: [{}, test.csv]",
    "data_files: [{{split: train, path: {}}}]",
    "data_files: [{{split: train, path: [test.csv, {}]}}]",
    "data_dir: {}",
)
ELSEWHERE = (
    "{private}/secret.csv",
    "../private/secret.csv",
    "a/../../private/*",
    "https://a.b/c.csv",
    "zip://a.csv::/b.zip",
    "file:///a.csv",
)


@pytest.mark.parametrize("config", CARDS)
@pytest.mark.parametrize("named", ELSEWHERE)
@pytest.mark.parametrize("card", ["README.md", ".huggingface.yaml"])
def test_a_card_names_files_of_its_folder_only(
    config: str, named: str, card: str, folder: Path, elsewhere: Path
) -> None:
    named = named.format(private=elsewhere)
    text = f"configs:\n- config_name: default\n  {config.format(named)}\n"
    (folder / "test.csv").write_text("text,label\na,0\n")
    (folder / card).write_text(f"---\n{text}---\n" if card == "README.md" else text)
    with pytest.raises(DataError, match="its card names .*data comes from the folder only"):
        open_samples(str(folder), "text")


def test_a_card_that_names_its_own_files_is_followed(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "x.csv").write_text("text,label\na,0\n")
    (folder / "test.csv").write_text("text,label\nb,0\n")
    (folder / "README.md").write_text("---\nconfigs:\n- config_name: mine\n  data_files: deep/x.csv\n---\n")
    assert open_samples(f"{folder}:mine:train", "text").inputs == ["a"]


def test_a_card_of_the_hub_names_files_of_its_repository_only(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hydractl.data.tables._check_reachable", lambda source: None)
    files = {"train": [f"{HUB}datasets/a/b@main/x.csv", str(elsewhere / "secret.csv")]}
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda source, name: Hub(files))
    with pytest.raises(DataError, match="a/b: its card names .*secret.csv"):
        open_table(DataSpec("b", "a/b"))


def names_in_csv(folder: Path, name: str) -> Path:
    (folder / "a.csv").write_text(f"image,label\n{name},x\n")
    return folder / "a.csv"


def names_in_metadata(folder: Path, name: str) -> Path:
    (folder / "metadata.csv").write_text(f"file_name,label\n{name},x\n")
    picture(0).save(folder / "0.png")
    return folder


def paths_in_parquet(folder: Path, name: str) -> Path:
    features = datasets.Features({"image": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}})
    table = datasets.Dataset.from_list([{"image": {"bytes": None, "path": name}}], features=features)
    table.to_parquet(folder / "a.parquet")
    return folder / "a.parquet"


@pytest.mark.parametrize("write", [names_in_csv, names_in_metadata, paths_in_parquet])
@pytest.mark.parametrize("name", ["{private}/secret.png", "../private/secret.png", "x/../../private/secret.png"])
def test_a_table_names_images_of_its_folder_only(
    write: Callable[[Path, str], Path], name: str, folder: Path, elsewhere: Path
) -> None:
    place = write(folder, name.format(private=elsewhere))
    with pytest.raises(DataError, match="outside of|must be a relative path"):
        open_samples(str(place), "image").content_hashes()


@pytest.mark.parametrize("write", [names_in_csv, paths_in_parquet])
def test_and_those_are_read(write: Callable[[Path, str], Path], folder: Path) -> None:
    image_folder(folder, ["sub/0.png"])
    for name in ("sub/0.png", "./x/../sub/0.png", str(folder / "sub" / "0.png")):
        assert open_samples(str(write(folder, name)), "image").content_hashes().tolist() == [image_hash(picture(0))]


def test_rows_made_in_python_may_name_any_file(elsewhere: Path) -> None:
    table = datasets.Dataset.from_dict({"image": [str(elsewhere / "secret.png")]})
    assert open_samples(table, "image").content_hashes().tolist() == [image_hash(picture(7))]


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.fixture
def ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called gs that leaves a trace when it is started."""
    programs, trace = tmp_path / "bin", tmp_path / "started"
    programs.mkdir()
    (programs / "gs").write_text(f"#!/bin/sh\ntouch {trace}\n")
    (programs / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # looked for anew
    return trace


def test_no_program_is_started_for_an_image(ghostscript: Path, folder: Path) -> None:
    (folder / "a.png").write_bytes(POSTSCRIPT)
    with suppress(Exception):  # Pillow left to itself starts it, and fails for want of a drawing
        Image.open(folder / "a.png").load()
    assert ghostscript.exists()
    ghostscript.unlink()
    with pytest.raises(DataError, match=r"a.png\): unreadable image: not one of PNG, JPEG, WEBP, GIF, BMP, TIFF"):
        open_samples(str(folder), "image").content_hashes()
    assert not ghostscript.exists()


def bomb(width: int, height: int) -> bytes:
    """A PNG of very many pixels in a few bytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("limit", [None, 89_478_485])
def test_images_of_too_many_pixels_are_refused_before_they_are_decoded(
    limit: int | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)  # other libraries take Pillow's own limit away
    (folder / "a.png").write_bytes(bomb(60_000, 60_000))
    with pytest.raises(DataError, match=r"a.png\): .*(60000 x 60000|3600000000) pixels.*: make it smaller"):
        open_samples(str(folder), "image").content_hashes()


@pytest.mark.parametrize("form", ["png", "webp"])
def test_the_largest_images_are_read_within_the_limits(form: str, folder: Path) -> None:
    Image.new("RGBA", (8192, 6144), (9, 9, 9, 9)).save(folder / f"a.{form}", compress_level=1, lossless=True, method=0)
    prepare = ImagePreprocessor(ViTImageProcessor(size={"height": 8, "width": 8}), 3)
    with within_limits():
        images = open_samples(str(folder), "image")
        assert len(images.content_hashes()) == 1
        assert prepare(images.inputs[:])["pixel_values"].shape == (1, 3, 8, 8)


def test_folders_of_files_that_no_classifier_reads(folder: Path) -> None:
    (folder / "a.xml").write_text("<a/>")
    with pytest.raises(DataError, match="holds xml files, which are not read: give images or .parquet"):
        open_samples(str(folder), "text")
