"""Writing files so that a reader sees the old one or the whole new one, never a part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hydractl.errors import OutputError


def refuse_existing(path: Path, force: bool) -> None:
    """Raises OutputError when `path` exists and `force` is not set: called before long work starts."""
    if path.is_dir():
        raise OutputError(f"{path}: is a folder, the output is a file: name another output")
    if path.exists() and not force:
        raise OutputError(f"{path}: exists already: remove it, name another output or pass --force")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: folder {path.parent} does not exist: create it first")


@contextmanager
def write_atomically(path: Path, force: bool = False) -> Iterator[BinaryIO]:
    """A binary file to write into that becomes `path` when the block ends well, and vanishes when it does not.

    Raises:
        OutputError: `path` exists and `force` is not set, its folder is missing, or the disk refuses the bytes.
    """
    refuse_existing(path, force)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _default_mode())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}: free some space or name another output") from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def write_bytes(path: Path, data: bytes, force: bool = False) -> None:
    """Writes a small file whole."""
    with write_atomically(path, force) as file:
        file.write(data)


def _default_mode() -> int:
    # mkstemp makes files private; an output gets the mode any new file of this user would have.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    # A rename is only safe from power loss once the folder itself is on disk; not every file system offers it.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
