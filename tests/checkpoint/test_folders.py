import errno
import json
import os
from pathlib import Path

import pytest

from hydractl.checkpoint.folders import MARK, foreign_file, is_ours, refuse_folder, write_folder
from hydractl.errors import OutputError


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
    assert foreign_file(tmp_path / "out", "report") is None
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
    with pytest.raises(OutputError, match="holds thesis.txt, which hydractl did not write"):
        make(tmp_path / "mine", force=force)
    make(tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("by hand")
    with pytest.raises(OutputError, match=r"holds notes.txt"):
        make(tmp_path / "out", force=force)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a file"):
        refuse_folder(tmp_path / "file", "report", force)
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(OutputError, match="is a link"):
        refuse_folder(tmp_path / "link", "report", force)


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    make(tmp_path / "other")
    (tmp_path / "other").rename(tmp_path / ".out.part")
    make(tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No space left"), write_folder(tmp_path / "out", "report"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert os.listdir(tmp_path) == []
