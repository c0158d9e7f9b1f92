"""The example that asks what members should be chosen by: by every rule, on kept answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import save_images
from tests.examples.test_trunk_depth import write_circuit

SCRIPT = Path(__file__).parents[2] / "examples" / "selection_study.py"


@pytest.mark.slow
def test_every_rule_is_measured_and_answers_are_kept(vit: Path, noise: Path, tmp_path: Path) -> None:
    images = save_images(tmp_path / "many", count=12)
    circuit = write_circuit(tmp_path / "avg.json", [(0, 0), (1, 0), (1, 1), (1, 2), (0, 3)])
    answers = tmp_path / "answers.npz"

    def study(*options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, SCRIPT, vit, images, "--circuit", circuit, "--choose-ood", noise, "--test-ood",
                   f"labels={noise}", "--budgets", "1,2", "--pools", "4", "--draws", "2", "--choose", 12,
                   "--splits", 2, "--answers", answers, *options]  # fmt: skip
        return subprocess.run(list(map(str, command)), capture_output=True, text=True)

    done = study("--random", 2, "--joint", "1,2", "--joint-rules", "avg")
    assert done.returncode == 0, done.stderr
    header, _, *rows = done.stdout.splitlines()
    assert header == "| among | by | accuracy, points | NLL | mean AUROC, points |"
    names = [row.split("|")[1].strip() for row in rows]
    assert names[-2:] == ["joint search, 1 heads", "joint search, 2 heads"]
    assert len(rows) == 4 * 5 + 2 and all(row.count("±") == 3 for row in rows)
    other = study("--random", 3)  # than those whose answers are kept
    assert other.returncode == 1 and "holds other candidates" in other.stderr
