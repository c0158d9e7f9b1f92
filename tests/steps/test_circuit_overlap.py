"""`hydractl.circuit_overlap` and `hydractl circuit overlap` are the same code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hydractl
from tests.cli.conftest import Command
from tests.cli.test_circuit import write


def test_python_and_the_command_compare_alike(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = [
        write("a.json", ("vision", 0, 0), ("vision", 1, 0), objective="acc"),
        write("b.json", ("vision", 0, 0), ("vision", 0, 1), objective="ood"),
    ]
    found = hydractl.circuit_overlap(files)
    assert json.loads(run("circuit", "overlap", *files, "--json").out) == found.to_json()
    assert run("circuit", "overlap", *files).out == f"{found!r}\n"
    assert "1 of 2 heads" in found._repr_html_()
