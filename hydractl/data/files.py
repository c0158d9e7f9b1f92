"""Files that hold data: which formats are read, and how texts and bytes are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

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


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file.

    Raises:
        DataError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path}: cannot read: no file can have this name") from error


def decode_text(data: bytes, where: str, expected: str) -> str:
    """Returns UTF-8 as text, without the mark that some editors put before it.

    Args:
        where: the file, for messages.
        expected: what should stand there, for messages.

    Raises:
        DataError: it is something else.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: cannot read as text ({error}): write {expected}, in UTF-8") from error


def inside(path: str, folders: Sequence[Path] | None) -> Path:
    """Returns the file that a row of a table names, relative to the first folder or within one of them.

    Only the name counts: links are followed, since collections of images often are folders of links.

    Args:
        folders: None allows any file.

    Raises:
        DataError: a file elsewhere, which a table that a stranger made must not choose.
    """
    if folders is None:
        return Path(path)
    place = Path(os.path.normpath(folders[0] / path))
    if not any(place.is_relative_to(folder) for folder in folders):
        raise DataError(f"lies outside of {folders[0]}, and a table may name files of its own folder only")
    return place
