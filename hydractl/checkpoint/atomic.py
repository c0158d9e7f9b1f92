"""Writing files so that a reader sees the old one or the whole new one, never a part, and no other run's."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Any, BinaryIO, cast

from hydractl.checkpoint.locks import lock, remove_if_abandoned
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
def writing(path: Path) -> Iterator[None]:
    """Turns what the disk refuses while the block runs into an error of ours.

    Raises:
        OutputError: it did.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{path}: cannot write: {reason}: free some space or name another output") from error


class _File(FileIO):
    """A file that remembers what the disk refused: some libraries make an error of their own of it."""

    refusal: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.refusal = error
            raise


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
    with writing(path):
        raw, temporary = _part(path)
        try:
            with BufferedWriter(raw) as file:
                yield cast("BinaryIO", file)
                file.flush()
                os.fsync(file.fileno())
                _put(temporary, path, force)
            _sync_folder(path.parent)
        except Exception:
            if raw.refusal is not None:
                # Not `from error`, which that may be itself, or have caused: causes would go round in a circle.
                raise raw.refusal from None
            raise
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


def append_bytes(path: Path, data: bytes) -> None:
    """Adds to the end of a file all of the data or, where the disk refuses it, nothing.

    Raises:
        OutputError: it does.
    """
    with writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        end = os.fstat(descriptor).st_size
        try:
            if os.write(descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(descriptor, end)
            raise
        finally:
            os.close(descriptor)


def _part(path: Path) -> tuple[_File, Path]:
    """A new file beside `path`, locked, and sure to be there still: before it was, another run may have removed it."""
    while True:
        temporary = part_of(path)
        raw = _File(temporary, "xb")
        with suppress(FileNotFoundError):
            if lock(raw.fileno()) and os.path.samestat(os.fstat(raw.fileno()), os.stat(temporary)):
                return raw, temporary
        raw.close()


def part_of(path: Path) -> Path:
    """A new name beside `path`, for what is to become it."""
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}{PART}")


def remove_abandoned(path: Path) -> None:
    """Removes the parts of an output that a killed run has left: no process holds their lock."""
    _remove_abandoned(path.parent.glob(f".{literal(path.name[:200])}.*{PART}"))


def remove_abandoned_parts(folder: Path) -> None:
    """Removes the parts that a killed run has left in a folder of ours, of whichever file."""
    _remove_abandoned(folder.glob(f".*{PART}"))


def _remove_abandoned(parts: Iterable[Path]) -> None:
    for part in parts:
        if part.is_file():
            remove_if_abandoned(part)


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
