"""Files and folders that hold data: which formats are read, and folders of images."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from hydractl.errors import DataError

if TYPE_CHECKING:
    import datasets

# File endings and the loader of the `datasets` library that reads them.
FILE_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".tar": "webdataset",
}
# The words by which `datasets` tells splits apart in file and folder names.
KEYWORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
#: A folder of images with one of these is read by the `datasets` library.
CARDS = ("README.md", "metadata.csv", "metadata.jsonl", "metadata.parquet")


def split_of_word(word: str) -> str | None:
    """Returns the split that a file or folder of this name holds, such as validation for `val`, or None."""
    return KEYWORDS.get(re.sub(r"-\d+-of-\d+$", "", word.lower()))


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file; raises DataError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}") from error


def decode_text(data: bytes, where: str, expected: str) -> str:
    """Returns UTF-8 as text, without the byte order mark of some editors.

    Args:
        where: the file, for messages.
        expected: the content that the file should have, for messages.

    Raises:
        DataError: the bytes are not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: cannot read as text ({error}): write {expected}, in UTF-8") from error


def named_file(path: str, folder: Path | None) -> Path:
    """Returns the file that a row of a table names.

    Args:
        folder: where relative names start; None for a data set of the hub, which may name downloaded files only.

    Raises:
        DataError: a data set of the hub names another file of this machine.
    """
    if folder is not None:
        return folder / path
    import datasets
    import huggingface_hub

    place = Path(os.path.abspath(path))
    caches = (datasets.config.HF_DATASETS_CACHE, huggingface_hub.constants.HF_HUB_CACHE)
    if not any(place.is_relative_to(os.path.abspath(cache)) for cache in caches):
        raise DataError("lies outside of the downloaded files: leave the sample out")
    return place


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
    """Returns the images below a folder, or an empty list where a card or a metadata table describes them."""
    from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder

    has_card = any((folder / card).is_file() for card in CARDS)
    return [] if has_card else files_below(folder, frozenset(ImageFolder.EXTENSIONS))


def image_splits(files: list[Path]) -> dict[str, list[Path]]:
    """Returns the files of each split; all are in `train` unless every top folder bears a split's name.

    The `datasets` library would take a class folder named `test` for a split and silently drop its neighbours.
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
    import datasets

    # Absolute, since names that are relative are those of files beside a table.
    columns: dict[str, list[object]] = {"image": [str(folder.absolute() / path) for path in files]}
    features: dict[str, object] = {"image": datasets.Image()}
    if all(len(path.parts) > below + 1 for path in files):
        names = sorted({path.parts[below] for path in files})
        features["label"] = datasets.ClassLabel(names=names)
        columns["label"] = [path.parts[below] for path in files]
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))
