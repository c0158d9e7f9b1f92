"""Locks that die with the process that holds them: who writes an output, and what a killed run has left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydractl.errors import OutputError

# Windows has none: nothing is known of other processes there.
fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None


def lock(descriptor: int) -> bool:
    """Locks an open file for this process, if no other holds it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_if_abandoned(path: Path) -> None:
    """Removes a file whose lock no process holds; where that cannot be told it stays."""
    if fcntl is None:
        return
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            # Locked until it is gone: whoever has just made it sees that it is not theirs any more.
            if lock(descriptor):
                path.unlink()
        finally:
            os.close(descriptor)


@contextmanager
def claim(path: Path) -> Iterator[None]:
    """Keeps an output to this process while the block runs; a lock file lies beside it as long.

    Raises:
        OutputError: another process has claimed it, which the message names, or the folder cannot be written to.
    """
    place = path.with_name(f".{path.name[:200]}.lock")
    descriptor = _open(path, place)
    try:
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        except OSError as error:
            raise _refused(path, error) from error
        yield
    finally:
        with suppress(OSError):
            place.unlink()
        os.close(descriptor)


def _open(path: Path, place: Path) -> int:
    """The lock file, locked, and sure to be the one that lies at `place`."""
    while True:
        try:
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError as error:
            raise _refused(path, error) from error
        if not lock(descriptor):
            holder = os.read(descriptor, 20).decode("ascii", "replace")
            os.close(descriptor)
            raise OutputError(f"{path}: process {holder} is writing it: wait for it, or name another output")
        # The one who held it may have removed it between our opening and our locking it.
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), os.stat(place)):
                return descriptor
        os.close(descriptor)


def _refused(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path}: cannot write beside it: {error.strerror}: free some space or name another output")
