"""The benchmark of whole searches runs and finds that exact and screened searches choose from the same scores."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmarks" / "whole_search.py"


@pytest.mark.slow
def test_whole_searches_are_timed(vit: Path, images: Path, noise: Path) -> None:
    command = [sys.executable, SCRIPT, vit, images, noise, "--objective=acc", "--budget=2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("acc, 2 of 8 heads, 12 + ")
    assert re.fullmatch(r"naive +[\d.]+ s: 15 candidates of [\d.]+, [\d.]+, [\d.]+ s", lines[1])
    assert re.search(r"then [1-7] of 7 scored exactly$", lines[-2])
    assert lines[-1].startswith("exact and screened choices ")
