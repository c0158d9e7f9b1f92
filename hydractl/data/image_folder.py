"""A folder of image files as a data set: its sub-folders are splits and classes."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn

import datasets
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder

from hydractl.data.splits import split_of_word
from hydractl.errors import DataError

IMAGE_ENDINGS = frozenset(ImageFolder.EXTENSIONS)
CARDS = ("README.md", "metadata.csv", "metadata.jsonl", "metadata.parquet")


def files_below(folder: Path, endings: Collection[str]) -> list[Path]:
    """Returns the files with these endings, relative to the folder and in order; hidden ones are left out.

    Raises:
        DataError: a folder that may not be read.
    """
    found: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if name[0] != "."]
        named = (name for name in files if name[0] != "." and os.path.splitext(name)[1].lower() in endings)
        found += [Path(os.path.relpath(place, folder), name) for name in named]
    return sorted(found)


def _unreadable(error: OSError) -> NoReturn:
    raise DataError(f"{error.filename}: cannot look into this folder: {error.strerror}") from error


def image_files(folder: Path) -> list[Path]:
    """Returns the images below a folder, or none where a card or a metadata table leaves it to `datasets`."""
    has_card = any((folder / card).is_file() for card in CARDS)
    return [] if has_card else files_below(folder, IMAGE_ENDINGS)


def image_splits(files: list[Path]) -> dict[str, list[Path]]:
    """Returns the files of each split; all are in `train` unless every top folder bears a split's name.

    The `datasets` library would take a class folder named `test` for a split and drop its neighbours unsaid.
    """
    splits: dict[str, list[Path]] = {}
    for path in files:
        split = split_of_word(path.parts[0]) if len(path.parts) > 1 else None
        if split is None:
            return {"train": files}
        splits.setdefault(split, []).append(path)
    return splits


def read_image_folder(folder: Path, files: list[Path], below: int) -> datasets.Dataset:
    """Returns the images, with the class each folder stands for where all of them lie in class folders.

    Args:
        files: paths relative to `folder`.
        below: how many leading parts of each path name no class (1 where they name the split).
    """
    # Absolute, since names that are relative are those of files beside a table.
    columns: dict[str, list[object]] = {"image": [str(folder.absolute() / path) for path in files]}
    features: dict[str, object] = {"image": datasets.Image()}
    if all(len(path.parts) > below + 1 for path in files):
        names = sorted({path.parts[below] for path in files})
        features["label"] = datasets.ClassLabel(names=names)
        columns["label"] = [path.parts[below] for path in files]
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))
