"""Writing files so that a reader sees the old one or the whole new one, never a part, and no other run's."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hydractl.checkpoint.locks import is_abandoned, lock
from hydractl.errors import OutputError

PART = ".part"  # how names of files end that are not whole yet


def refuse_existing(path: Path, force: bool) -> None:
    """Nothing, if `path` can become an output: called before long work starts.

    Raises:
        OutputError: it exists and `force` is not set, is no regular file, or its folder is missing.
    """
    if path.is_dir():
        raise OutputError(f"{path}: is a folder, the output is a file: name another output")
    if os.path.lexists(path):
        if path.exists() and not path.is_file():
            raise OutputError(f"{path}: is no regular file: name another output")
        if not force:
            raise OutputError(f"{path}: exists already: remove it, name another output or pass `force`")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: folder {path.parent} does not exist: create it first")


@contextmanager
def write_atomically(path: Path, force: bool = False) -> Iterator[BinaryIO]:
    """A binary file to write into that becomes `path` when the block ends well, and vanishes when it does not.

    Without `force` it never replaces a file, also one that another run has put there in the meantime. What a killed
    run has left of the same output is removed.

    Raises:
        OutputError: `path` exists and `force` is not set, its folder is missing, or the disk refuses the bytes.
    """
    refuse_existing(path, force)
    remove_abandoned(path)
    temporary = part_of(path)
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            lock(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
            _put(temporary, path, force)
        _sync_folder(path.parent)
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}: free some space or name another output") from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_bytes(path: Path, data: bytes, force: bool = False) -> None:
    """Writes a small file whole.

    Raises:
        OutputError: see `write_atomically`.
    """
    with write_atomically(path, force) as file:
        file.write(data)


def part_of(path: Path) -> Path:
    """A new name beside `path`, for what is to become it."""
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}{PART}")


def remove_abandoned(path: Path) -> None:
    """Removes the parts of an output that a killed run has left: no process holds their lock."""
    for part in path.parent.glob(f".{literal(path.name[:200])}.*{PART}"):
        if part.is_file() and is_abandoned(part):
            with suppress(OSError):
                part.unlink()


def _put(temporary: Path, path: Path, force: bool) -> None:
    """Gives a file its name: in place of another only with `force`."""
    if force:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise OutputError(
            f"{path}: another run has written it in the meantime: name another output or pass `force`"
        ) from None
    except OSError:
        # A file system without hard links: the name is taken first, so that two runs never both think it theirs.
        _take(path)
        os.replace(temporary, path)


def _take(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        raise OutputError(
            f"{path}: another run has written it in the meantime: name another output or pass `force`"
        ) from None


def literal(name: str) -> str:
    """A name as a pattern that matches it alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _sync_folder(folder: Path) -> None:
    # A rename is only safe from power loss once the folder itself is on disk; not every file system offers it.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
