"""A reader sees the old file or the whole new one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hydractl.checkpoint.atomic import write_atomically
from hydractl.errors import OutputError


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


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match=r"folder .*nowhere does not exist"),
        write_atomically(tmp_path / "nowhere/x"),
    ):
        pass
