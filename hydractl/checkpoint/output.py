"""The one way to write, to lock, and to go on.

A reader sees the old file or the whole new one, never a part. An output belongs to one process as long as that lives. A
run goes on from what an interrupted one left only under the same conditions.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeGuard, cast

from hydractl.errors import ArtifactError, OptionError, OutputError
from hydractl.options import is_read
from hydractl.schema import Origin, read_json
from hydractl.text import shortened

if TYPE_CHECKING:
    from filelock import BaseFileLock

PART = ".part"  # how names of unfinished files end
MEMBER = "{member}"
ATTEMPTS = 100  # to lock a file that vanishes again and again
_REMEDIES = {
    errno.ENOSPC: "free some space or name another output",
    errno.EDQUOT: "free some space or name another output",
    errno.ENAMETOOLONG: "give a shorter name",
}
#: A file in every folder we make: its kind, and the names of the files that we put there.
MARK = ".hydractl.json"
FORMAT = "hydractl-folder"
CONDITIONS = "conditions.json"


def output_paths(output: str | Path, names: Sequence[str]) -> list[Path]:
    """Returns a file for each network: `output` itself, by name in that folder, or numbered in the place of {member}.

    Args:
        output: a path; one that ends with a slash is a folder, whether it exists or not.
        names: of the networks, without suffix.

    Raises:
        OptionError: several networks and one file to write, or two of one name.
    """
    path = Path(output)
    if MEMBER in path.name:
        return [path.with_name(path.name.replace(MEMBER, str(number))) for number in range(len(names))]
    if path.is_dir() or str(output).endswith("/"):
        paths = [path / f"{name}.safetensors" for name in names]
        if len(set(paths)) < len(paths):
            raise OptionError(f"`output` {output}: two models have the same name: use a name with {MEMBER}")
        return paths
    if len(names) > 1:
        raise OptionError(f"`output` {output}: {len(names)} members need a folder (NAME/) or a name with {MEMBER}")
    return [path]


def refuse_existing(path: Path, force: bool, inputs: Sequence[object] = ()) -> None:
    """Checks that `path` can become an output, before long work starts.

    Args:
        inputs: what the command reads, where its options do not name the output; `force` does not replace these.

    Raises:
        OutputError: it exists and `force` is not set, is an input or no regular file, or its folder is missing
            or takes no file.
    """
    require_folder_of(path)
    if path.is_dir():
        raise OutputError(f"{path}: is a folder, but the output is a file: name another output")
    if os.path.lexists(path):
        if path.exists() and not path.is_file():
            raise OutputError(f"{path}: is not a regular file: name another output")
        if path.exists() and any(is_read(path, source) for source in inputs):
            raise OutputError(f"{path}: is an input of this command: name another output")
        if not force:
            raise OutputError(f"{path}: exists already: remove it, name another output or pass `force`")


def require_folder_of(path: Path, parents: bool = False) -> None:
    """Checks that a file or folder can be made at `path`, by a nameless file in the folder that would hold it.

    Args:
        parents: whether folders on the way are made.

    Raises:
        OutputError: the folder is missing or takes no file, or the name is too long.
    """
    from tempfile import TemporaryFile

    folder = next((parent for parent in path.parents if os.path.lexists(parent)), path.parent)
    with writing(path, folder):
        for name in path.relative_to(folder).parts:
            with suppress(FileNotFoundError):
                (folder / name).lstat()
        # /proc and the like allow writing by their mode, and refuse it all the same.
        TemporaryFile(dir=folder).close()
    if folder != path.parent and not parents:
        raise OutputError(f"{path}: folder {path.parent} does not exist: create it first")


@contextmanager
def writing(path: Path, folder: Path | None = None) -> Iterator[None]:
    """Turns an error of the disk while the block runs into OutputError.

    Args:
        folder: the one that is written in, for the message.
    """
    try:
        yield
    except OSError as error:
        place = "" if folder is None else f" in {folder}"
        remedy = _REMEDIES.get(error.errno or 0, "name another output")
        raise OutputError(f"{path}: cannot write{place}: {error.strerror or error}: {remedy}") from error


class _File(FileIO):
    """A file that remembers the disk's error: some libraries replace it with an error of their own."""

    refusal: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.refusal = error
            raise


@contextmanager
def write_atomically(path: Path, force: bool = False) -> Iterator[BinaryIO]:
    """Yields a binary file that becomes `path` when the block ends well, and vanishes when it does not.

    Without `force` it never replaces a file. What a killed run left of the same output is overwritten.

    Raises:
        OutputError: `path` exists and `force` is not set, its folder is missing, another run is writing it, or the
            disk refuses the bytes.
    """
    refuse_existing(path, force)
    temporary = part_of(path)
    with writing(path):
        if (held := _locked(temporary)) is None:
            raise OutputError(f"{path}: another run is writing it: wait for it, or name another output")
        raw = None
        try:
            with BufferedWriter(raw := _File(temporary, "wb")) as file:
                yield cast("BinaryIO", file)
                file.flush()
                os.fsync(file.fileno())
            refuse_existing(path, force)
            os.replace(temporary, path)
            _sync_folder(path.parent)
        except Exception:
            if raw is not None and raw.refusal is not None:
                # Not `from error`, which may be the same error, or its effect: causes would form a circle.
                raise raw.refusal from None
            raise
        finally:
            temporary.unlink(missing_ok=True)
            held.release()


def write_bytes(path: Path, data: bytes, force: bool = False) -> None:
    """Writes a small file whole.

    Raises:
        OutputError: see `write_atomically`.
    """
    with write_atomically(path, force) as file:
        file.write(data)


def append_bytes(path: Path, data: bytes) -> None:
    """Adds all of the data to the end of a file, or nothing.

    Raises:
        OutputError: the disk refuses the data.
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


def make_folder(path: Path, parents: bool = False) -> None:
    """Makes a folder unless it exists.

    Args:
        parents: make its parents too.

    Raises:
        OutputError: the disk refuses it.
    """
    with writing(path):
        path.mkdir(parents=parents, exist_ok=True)


def part_of(path: Path) -> Path:
    """Returns the name, beside `path`, of what is to become it."""
    return _beside(path, PART)


def _beside(path: Path, ending: str) -> Path:
    """Returns a hidden name beside `path`; a hash takes the place of most of a name that leaves no room for more."""
    name = path.name
    short = name if len(name.encode()) <= 200 else name[:40] + sha256(name.encode()).hexdigest()
    return path.with_name(f".{short}{ending}")


def _locked(path: Path) -> BaseFileLock | None:
    """Returns the lock of a file, held; None if another process or another part of this one holds it."""
    from filelock import FileLock, Timeout

    held = FileLock(path)
    try:
        held.acquire(blocking=False)
    except Timeout:
        return None
    return held


def _sync_folder(folder: Path) -> None:
    # A rename is only safe from power loss once the folder itself is on disk; not every file system offers it.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def claim(path: Path | None) -> Iterator[None]:
    """Keeps an output to this process while the block runs; a lock file lies beside it as long; None claims nothing.

    Raises:
        OutputError: another process has claimed it, which the message names, or the folder cannot be written to.
    """
    if path is None:
        yield
        return
    require_folder_of(path)
    place = _beside(path, ".lock")
    with writing(path):
        for _ in range(ATTEMPTS):
            if (held := _locked(place)) is not None:
                break
            # A lock file that has gone since belonged to a run that has just ended.
            with suppress(FileNotFoundError):
                holder = place.read_text(errors="replace")[:20] or "that gives no number"  # its disk was full
                raise OutputError(f"{path}: process {holder} is writing it: wait for it, or name another output")
        else:
            raise OutputError(f"{path}: cannot be locked: name another output")
    try:
        with suppress(OSError):  # on a full disk the message of another process lacks the number
            place.write_text(str(os.getpid()))
        yield
    finally:
        with suppress(OSError):
            place.unlink()
        held.release()


def goes_on(path: Path, resume: bool, force: bool) -> bool:
    """Returns whether a run goes on from what lies at a path; without `resume` and with `force` it starts over.

    Raises:
        OutputError: an interrupted run is neither continued nor given up.
    """
    if not os.path.lexists(path):
        return False
    if not resume and not force:
        raise OutputError(f"{path}: holds an unfinished run: continue with `resume`, or start over with `force`")
    return resume


def refuse_other(origin: Origin, past: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Raises the origin's error if a run was made under other conditions; names the first difference."""
    if other := difference(past, present):
        raise origin.refusal(f"was made with {other}")


def difference(past: Mapping[str, Any], present: Mapping[str, Any]) -> str | None:
    """Returns the first difference between two runs, as `another seed (0, now 1)`; None if there is none.

    Args:
        past: the conditions of the earlier run as its file holds them, plain JSON from outside.
        present: those of this run; what either lacks counts as null.
    """
    if (change := first_change(past, json.loads(json.dumps(present)))) is None:
        return None
    name, old, new = change
    return f"another {name} ({old}, now {new})"


def first_change(past: Mapping[Any, Any], present: Mapping[Any, Any], within: str = "") -> tuple[str, str, str] | None:
    """Returns the name, and both values in short, of the first entry of plain JSON that differs; None if none does."""
    for name in {**present, **past}:
        old, new = past.get(name), present.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            return first_change(old, new, f"{within}{name} ")
        if _are_objects(old) and _are_objects(new) and len(old) == len(new):
            return first_change(dict(enumerate(old)), dict(enumerate(new)), f"{within}{name} ")
        return f"{within}{shortened(str(name), 40)}", _short(old), _short(new)
    return None


def _are_objects(value: object) -> TypeGuard[list[Mapping[str, Any]]]:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _short(value: object) -> str:
    return shortened(value if isinstance(value, str) else json.dumps(value), 24)


def refuse_folder(path: Path, kind: str, force: bool) -> None:
    """Checks that `path` can become a folder of ours, before long work starts.

    An empty folder may be filled. With `force` a folder of the same kind is replaced if everything in it is ours.

    Raises:
        OutputError: something else is there, or `force` is not set.
    """
    require_folder_of(path, parents=True)
    if os.path.lexists(path) and not path.is_dir():
        raise OutputError(f"{path}: is a file, but the output is a folder: name another output")
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


class StateFolder:
    """The finished part of a run, in files beside its output, and the conditions it was computed under."""

    kind = "state"  # tells it from other folders of ours

    def __init__(self, folder: Path, conditions: Mapping[str, Any], resume: bool, force: bool) -> None:
        """
        Args:
            conditions: all that determines what is computed, as plain JSON.
            resume: continue from what lies in the folder.
            force: remove what lies there, if it is ours.

        Raises:
            OutputError: the folder is not ours, or holds an interrupted run and neither `resume` nor `force` is set.
            ArtifactError: the run to resume had other conditions; the first difference is named.
        """
        self.folder = folder
        if goes_on(folder, resume, force):
            origin = Origin(str(folder), ArtifactError, "use the same options and data, or start over with `force`")
            refuse_other(origin, read_json(folder / CONDITIONS, origin).fields, conditions)
            return
        if folder.exists():
            self.remove()
        # Whole or not at all: a run that is killed here leaves nothing in the way of the next.
        with write_folder(folder, self.kind) as new:
            write_bytes(new / CONDITIONS, json.dumps(conditions).encode())

    def remove(self) -> None:
        """Removes the folder, once the output is written or given up."""
        if not is_ours(self.folder, self.kind):
            raise OutputError(f"{self.folder}: was not made by hydractl: move it, or name another output")
        # Renamed first: half a folder would not be recognised as ours.
        gone = part_of(self.folder)
        with writing(self.folder):
            self.folder.rename(gone)
            shutil.rmtree(gone)
