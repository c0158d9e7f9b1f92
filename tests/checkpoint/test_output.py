import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hydractl.checkpoint import output as outputs
from hydractl.checkpoint.output import MARK, claim, is_ours, output_paths, write_atomically, write_folder
from hydractl.errors import OptionError, OutputError

HOLDER = """
import sys, time
from pathlib import Path
from hydractl.checkpoint.output import claim, claim
with claim(Path(sys.argv[1])):
    print("holding", flush=True)
    time.sleep(60)
"""


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), write_atomically(path, force=True) as file:
        file.write(b"half of the new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"), write_atomically(tmp_path / "out") as file:
        file.write(b"x")
    assert list(tmp_path.iterdir()) == []


def test_of_two_writers_of_one_output_the_second_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with write_atomically(path) as early:
        early.write(b"early")
        with pytest.raises(OutputError, match="another run"), write_atomically(path):
            pass
    assert path.read_bytes() == b"early"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(OutputError, match="exists already"), write_atomically(path) as late:
        late.write(b"late")
        path.write_bytes(b"early")
    assert path.read_bytes() == b"early"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_run_left_of_an_output_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / ".out.part").write_bytes(b"half of something longer")
    with write_atomically(tmp_path / "out") as file:
        file.write(b"whole")
    assert (tmp_path / "out").read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["out"]


def test_long_names_that_begin_alike_are_two_outputs(tmp_path: Path) -> None:
    with claim(tmp_path / ("n" * 240)), claim(tmp_path / ("n" * 240 + ".state")):
        assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize(
    ("name", "message"), [("fifo", "is not a regular file"), ("nowhere/x", "folder .*nowhere does")]
)
def test_pipes_and_missing_folders_are_no_outputs(name: str, message: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OutputError, match=message), write_atomically(tmp_path / name, force=True):
        pass


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that refuses files even to root")
@pytest.mark.parametrize("write", [claim, write_atomically])
def test_a_folder_that_refuses_files_is_no_place_to_wait_for(write: Callable[[Path], Any]) -> None:
    with pytest.raises(OutputError, match="cannot write in /proc"), write(Path("/proc/new")):
        pass


def test_a_new_file_has_the_mode_of_any_other(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with write_atomically(tmp_path / "out"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


def test_a_second_run_is_told_who_holds_the_output_until_that_one_is_killed(tmp_path: Path) -> None:
    output = tmp_path / "out"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, output], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "holding\n"
    with pytest.raises(OutputError, match=f"process {holder.pid} is writing it"), claim(output):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with claim(output):
        assert [path.name for path in tmp_path.iterdir()] == [".out.lock"]
    assert list(tmp_path.iterdir()) == []


def test_which_files(tmp_path: Path) -> None:
    names = ["a", "b"]
    assert output_paths("m", names[:1]) == [Path("m")]
    assert output_paths(tmp_path, names) == [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    assert output_paths("new/", names) == [Path("new/a.safetensors"), Path("new/b.safetensors")]
    assert output_paths("m{member}", names) == [Path("m0"), Path("m1")]
    with pytest.raises(OptionError, match="`output` m: 2 members"):
        output_paths("m", names)
    with pytest.raises(OptionError, match="`output` new/"):
        output_paths("new/", ["a", "a"])


def make(path: Path, text: str = "new", force: bool = False) -> None:
    with write_folder(path, "report", force) as folder:
        (folder / "a").mkdir()
        (folder / "a" / "b.txt").write_text(text)


@pytest.mark.parametrize("empty", [False, True])
def test_a_folder_is_written_whole_and_says_what_is_in_it(tmp_path: Path, empty: bool) -> None:
    if empty:
        (tmp_path / "out").mkdir()
    make(tmp_path / "out")
    assert json.loads((tmp_path / "out" / MARK).read_text())["files"] == [MARK, os.path.join("a", "b.txt")]
    assert is_ours(tmp_path / "out", "report")
    assert outputs.foreign_file(tmp_path / "out", "report") is None
    assert not is_ours(tmp_path / "out", "export")
    assert os.listdir(tmp_path) == ["out"]


def test_an_interrupted_one_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    make(tmp_path / "out", "old")
    with pytest.raises(KeyboardInterrupt), write_folder(tmp_path / "out", "report", force=True) as folder:
        (folder / "half").touch()
        raise KeyboardInterrupt
    assert (tmp_path / "out" / "a" / "b.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_with_force_ours_is_replaced(tmp_path: Path) -> None:
    make(tmp_path / "out", "old")
    with pytest.raises(OutputError, match="exists already"):
        make(tmp_path / "out")
    make(tmp_path / "out", force=True)
    assert (tmp_path / "out" / "a" / "b.txt").read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("force", [False, True])
def test_what_is_not_ours_is_never_replaced(tmp_path: Path, force: bool) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="holds thesis.txt"):
        make(tmp_path / "mine", force=force)
    make(tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("by hand")
    with pytest.raises(OutputError, match=r"holds notes.txt"):
        make(tmp_path / "out", force=force)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a file"):
        outputs.refuse_folder(tmp_path / "file", "report", force)
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(OutputError, match="is a link"):
        outputs.refuse_folder(tmp_path / "link", "report", force)


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    make(tmp_path / "other")
    (tmp_path / "other").rename(tmp_path / ".out.part")
    make(tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]
