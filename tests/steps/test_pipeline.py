"""A Makefile hands names of models and data to its commands as they are, whatever a shell or make would read there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from hydractl.options import Option
from hydractl.steps.pipeline import Given, Stage, makefile
from hydractl.steps.result import Result
from hydractl.text import printable
from hydractl.watch import Watcher
from tests.hostile import FRAGMENTS


@dataclass(frozen=True)
class Show:
    """Takes data."""

    data: Annotated[Sequence[str], Option("Data.", "Data", "DATA", repeated=True)]

    def run(self, watch: Watcher) -> Result:
        raise NotImplementedError


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_names_reach_the_commands_of_a_makefile(tmp_path: Path) -> None:
    texts = [f"a{text}b" for text in (*FRAGMENTS, "$(touch here)", "`touch here`", '"; touch here; "')]
    texts = [printable(text) for text in texts if len(text) < 100]
    given = [Given(f"V{place}", text, f"{text}=", f"%{text}") for place, text in enumerate(texts)]
    (tmp_path / "hydractl").write_text('#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done > said\n')
    (tmp_path / "hydractl").chmod(0o755)
    (tmp_path / "Makefile").write_text(makefile([Stage(Show(given), ("said",))], tmp_path, "said"))
    subprocess.run(["make"], cwd=tmp_path, check=True, capture_output=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    said = (tmp_path / "said").read_text().splitlines()
    assert said[2::2] == [f"{text}={text}%{text}" for text in texts]
    assert {file.name for file in tmp_path.iterdir()} == {"Makefile", "hydractl", "said", "work"}
