"""The digits example, all of it, with a training cut short."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_example_runs_through(tmp_path: Path) -> None:
    stamp = tmp_path / "installed"
    stamp.write_text(str(ROOT))  # this environment has the project already
    build = tmp_path / "build"
    steps = ["STEPS=300", "MEMBER_STEPS=20", "BUILD_STEPS=5"]
    variables = [f"BUILD={build}", *steps, f"VENV={sys.prefix}", f"INSTALLED={stamp}"]
    done = subprocess.run(
        ["make", "-C", ROOT / "examples", "digits", "digits-steps", *variables],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    built = json.loads((build / "built" / "build.json").read_text())
    assert built["verdict"].startswith("hydra against network: ")
    assert list(json.loads((build / "built" / "report.json").read_text())["models"]) == ["network", "hydra"]
    report = json.loads((build / "report.json").read_text())
    assert list(report["models"]) == ["single", "tuned", "acc", "ood", "avg", "hydra", "unmerged", "untuned"]
    single, hydra = report["models"]["single"], report["models"]["hydra"]
    assert single["id"]["accuracy"] > 0.5
    assert (single["cost"]["members"], hydra["cost"]["members"]) == (1, 3)
    assert single["cost"]["parameters"] < hydra["cost"]["parameters"] < 3 * single["cost"]["parameters"]
    assert (build / "table.txt").read_text() in done.stdout
    images = len(list((build / "data").rglob("*.png")))
    assert images > 1797  # every digit of scikit-learn, and the photographs
