"""Folders that this project makes: whole or not at all, and recognised before they are replaced."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydractl.checkpoint.output import claim, make_folder, part_of, require_folder_of, write_bytes, writing
from hydractl.errors import OutputError

#: A file in every folder we make: its kind, and the names of the files that we put there.
MARK = ".hydractl.json"
FORMAT = "hydractl-folder"


def refuse_folder(path: Path, kind: str, force: bool) -> None:
    """Checks that `path` can become a folder of ours, before long work starts.

    An empty folder may be filled. With `force` a folder of the same kind is replaced if everything in it is ours.

    Raises:
        OutputError: something else is there, or `force` is not set.
    """
    require_folder_of(path, parents=True)
    if os.path.lexists(path) and not path.is_dir():
        raise OutputError(f"{path}: is a file, the output is a folder: name another output")
    if path.is_symlink():
        raise OutputError(f"{path}: is a link: name the folder itself")
    if not path.is_dir() or not any(path.iterdir()):
        return
    if foreign := foreign_file(path, kind):
        raise OutputError(f"{path}: holds {foreign}, which hydractl did not write: name another folder")
    if not force:
        raise OutputError(f"{path}: exists already: remove it, name another folder or pass `force`")


@contextmanager
def write_folder(path: Path, kind: str, force: bool = False) -> Iterator[Path]:
    """Yields a folder that becomes `path` when the block ends well, and vanishes when it does not.

    Raises:
        OutputError: see `refuse_folder`; or the disk refuses it.
    """
    refuse_folder(path, kind, force)
    make_folder(path.parent, parents=True)
    temporary = part_of(path)
    with claim(path):
        _remove(temporary)  # nobody else writes it, so a killed run has left it
        try:
            with writing(path):
                temporary.mkdir()
                mark(temporary, kind, [])
                yield temporary
                mark(temporary, kind, _files(temporary))
                refuse_folder(path, kind, force)
                _exchange(temporary, path)
        except OutputError as error:
            # The user knows the folder by its final name.
            error.args = (str(error).replace(str(temporary), str(path)),)
            raise
        finally:
            _remove(temporary)


def mark(folder: Path, kind: str, files: list[str]) -> None:
    """Writes into a folder what it is and which of its files are ours."""
    content = {"format": FORMAT, "version": 1, "kind": kind, "files": sorted(files)}
    write_bytes(folder / MARK, f"{json.dumps(content, indent=2)}\n".encode(), force=True)


def is_ours(folder: Path, kind: str) -> bool:
    """Returns whether we made the folder, as one of this kind."""
    return _read(folder).get("kind") == kind


def foreign_file(folder: Path, kind: str) -> str | None:
    """Returns a file in a folder that we did not put there; None if all of it is ours."""
    if not is_ours(folder, kind):
        return next((str(child.name) for child in sorted(folder.iterdir())), None) if folder.is_dir() else None
    ours = {*_read(folder).get("files", []), MARK}
    return next((name for name in _files(folder) if name not in ours), None)


def _read(folder: Path) -> dict[str, Any]:
    place = folder / MARK
    try:
        content = json.loads(place.read_bytes()) if place.is_file() and place.stat().st_size < 2**20 else {}
    except (OSError, ValueError, RecursionError):
        return {}
    ours = isinstance(content, dict) and content.get("format") == FORMAT and isinstance(content.get("files"), list)
    return content if ours else {}


def _files(folder: Path) -> list[str]:
    return sorted(str(child.relative_to(folder)) for child in folder.rglob("*") if not child.is_dir())


def _exchange(new: Path, path: Path) -> None:
    """Renames a folder to `path`; replaces a folder there, which is ours or empty."""
    if not path.is_dir():
        os.rename(new, path)
        return
    old = part_of(path.with_name(f"{path.name[:190]}.old"))
    _remove(old)
    os.rename(path, old)
    os.rename(new, path)
    _remove(old)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
