"""Files and folders that hold data: regular ones only, since a pipe or a device may hang, or never end."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from hydractl.errors import DataError

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
LARGEST = 2**28  # bytes that are read at once: of an image, of a file of texts
A_FOLDER = "a folder"
KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: A_FOLDER,
}


def special_kind(path: Path) -> str | None:
    """What a path leads to where that is no regular file; None also where nothing is there."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except (OSError, ValueError):  # a name that no file can have is a ValueError
        return None
    return None if kind == stat.S_IFREG else KINDS.get(kind, "no regular file")


def require_regular(path: Path, folder: bool = False) -> None:
    """Nothing, if a path leads to a regular file, to a folder where that will do as well, or nowhere.

    Raises:
        DataError: it leads to a pipe, a socket or a device.
    """
    kind = special_kind(path)
    if kind and not (folder and kind == A_FOLDER):
        raise DataError(f"{path}: is {kind}: name a file{' or a folder' if folder else ''}")


def read_bytes(path: Path) -> bytes:
    """What stands in a file.

    Raises:
        DataError: it is no regular file, cannot be read, or is too large to read at once.
    """
    require_regular(path)
    try:
        with path.open("rb") as file:
            return read_bounded(file, str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path}: cannot read: no file can have this name") from error


def read_bounded(file: BinaryIO, where: str) -> bytes:
    """What comes from an open file or from stdin, which may have no end.

    Raises:
        DataError: it is too large to read at once.
    """
    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise DataError(f"{where}: more than {LARGEST >> 20} MiB, too much to read at once: give texts as a data set")
    return data


def read_text(path: Path, expected: str) -> str:
    """What stands in a file of UTF-8.

    Args:
        expected: what is to stand there, for messages.

    Raises:
        DataError: it is no regular file, cannot be read, or is something else.
    """
    return decode_text(read_bytes(path), str(path), expected)


def decode_text(data: bytes, where: str, expected: str) -> str:
    """UTF-8 as text, without the mark that some editors put before it.

    Raises:
        DataError: it is something else.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: cannot read as text ({error}): write {expected}, in UTF-8") from error


def inside(path: str, folders: Sequence[Path] | None) -> Path:
    """The file that a row of a table names, relative to the first folder or within one of them; None: any file.

    Only the name counts: links are followed, since collections of images often are folders of links.

    Raises:
        DataError: a file elsewhere, which is not for a table to choose.
    """
    if folders is None:
        return Path(path)
    place = Path(os.path.normpath(folders[0] / path))
    if not any(place.is_relative_to(folder) for folder in folders):
        raise DataError(f"lies outside of {folders[0]}, and a table may name files of its own folder only")
    return place
