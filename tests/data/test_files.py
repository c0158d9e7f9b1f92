"""What is read of a file or of stdin at once."""

from __future__ import annotations

import os
import sys
from io import BufferedReader, RawIOBase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hydractl.data import files
from hydractl.errors import DataError
from hydractl.steps import predict


class Endless(RawIOBase):
    """Zeros, as many as are asked for."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return len(buffer)


def test_what_is_read_at_once_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 2**20)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BufferedReader(Endless())))
    large = tmp_path / "large.txt"
    large.write_bytes(b"")
    os.truncate(large, 2**40)
    for source, read in ((large, lambda: files.read_bytes(large)), ("stdin", lambda: predict._content("-"))):
        with pytest.raises(DataError, match=f"^{source}: more than 1 MiB, too much to read at once"):
            read()
