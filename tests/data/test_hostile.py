"""Data of strangers: a table names images of its own folder only, and no program is started for an image."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import datasets
import pytest
from PIL import Image

from hydractl.data.hashes import image_hash
from hydractl.data.open import open_samples
from hydractl.data.sources import DataSpec
from hydractl.data.tables import HUB, open_table
from hydractl.errors import DataError
from tests.data.conftest import image_folder, picture
from tests.data.test_tables import Hub


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


def test_links_to_files_elsewhere_are_followed(folder: Path, elsewhere: Path) -> None:
    (folder / "a.png").symlink_to(elsewhere / "secret.png")
    (folder / "b.png").symlink_to(elsewhere / "gone.png")
    kept = open_samples(str(folder), "image", skip_bad=True)
    assert kept.content_hashes().tolist() == [image_hash(picture(7))]
    assert "No such file" in kept.skipped[0]


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
