"""A folder of image files as a data set: splits and classes are its sub-folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import datasets
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder

from hydractl.data.splits import split_of_word

IMAGE_ENDINGS = frozenset(ImageFolder.EXTENSIONS)
CARDS = ("README.md", "metadata.csv", "metadata.jsonl", "metadata.parquet")


def image_files(folder: Path, files: Iterable[str]) -> list[Path]:
    """Those of a folder's files that are images, in the order of their paths.

    A folder with a data card or a metadata table is left to the `datasets` library: none.

    Args:
        files: names relative to the folder.
    """
    if any((folder / card).is_file() for card in CARDS):
        return []
    return sorted(path for path in map(Path, files) if path.suffix.lower() in IMAGE_ENDINGS)


def image_splits(files: list[Path]) -> dict[str, list[Path]]:
    """The files of each split; all are in `train` unless every top folder bears a split's name.

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
    """The images, with the class each folder stands for where all of them lie in class folders.

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
