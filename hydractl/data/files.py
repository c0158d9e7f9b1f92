"""Files and folders that hold data: which formats are read, and what lies below a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path
from unicodedata import normalize

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
    ".conll": "conll",
}
# The words by which `datasets` tells splits apart in file and folder names.
KEYWORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}


def split_of_word(word: str) -> str | None:
    """Returns the split that a file or folder of this name holds, such as validation for `val`, or None."""
    return KEYWORDS.get(re.sub(r"-\d+-of-\d+$", "", word.lower()))


def read_bytes(path: Path, remedy: str) -> bytes:
    """Returns the content of a file; raises DataError with the remedy if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}: {remedy}") from error


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


def on_disk(path: str) -> str | None:
    """Returns the path of a file or folder that exists, whose names may be in the other Unicode form; or None."""
    return next((form for form in (path, normalize("NFC", path), normalize("NFD", path)) if os.path.exists(form)), None)


def named_file(path: str, folder: Path | None) -> Path:
    """Returns the file that a row of a table names.

    Args:
        folder: where relative names start; None for a data set of the hub, which may name downloaded files only.

    Raises:
        DataError: a data set of the hub names another file of this machine.
    """
    if folder is not None:
        return Path(on_disk(os.path.join(folder, path)) or folder / path)
    import datasets
    import huggingface_hub

    place = Path(os.path.abspath(path))
    caches = (datasets.config.HF_DATASETS_CACHE, huggingface_hub.constants.HF_HUB_CACHE)
    if not any(place.is_relative_to(os.path.abspath(cache)) for cache in caches):
        raise DataError("lies outside the downloaded files: leave the sample out")
    return place


def files_below(folder: Path, subfolder: str = "", above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[str]:
    """Yields the files below a folder, relative to it; links are followed, but no circle, hidden ones are left out.

    Args:
        subfolder: where to look, relative to the folder.
        above: the folders that `subfolder` lies in, by device and number.

    Raises:
        DataError: a folder that may not be read.
    """
    place = os.path.join(folder, subfolder)
    try:
        status = os.stat(place)
        with os.scandir(place) as entries:
            listing = [(entry.name, entry.is_dir()) for entry in entries if entry.name[0] != "."]
    except OSError as error:
        raise DataError(f"{error.filename or place}: cannot look into this folder: {error.strerror}") from error
    here = status.st_dev, status.st_ino
    if here in above:
        return
    for name, is_folder in listing:
        relative = os.path.join(subfolder, name)
        if is_folder:
            yield from files_below(folder, relative, above | {here})
        else:
            yield relative


def hashes_of_tables(place: Path) -> list[str]:
    """Returns the SHA-256 of the table at a path, or of those below it; nothing where there is none."""
    files = [place / name for name in sorted(files_below(place))] if place.is_dir() else [place]
    return [sha256_of(file) for file in files if file.suffix.lower() in FILE_FORMATS and file.is_file()]


def sha256_of(file: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as content:
        return file_digest(content, "sha256").hexdigest()
