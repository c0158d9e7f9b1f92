"""The example that measures what a trunk costs: trunks as deep as asked for, the figures those of `evaluate`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command

SCRIPT = Path(__file__).parents[2] / "examples" / "trunk_depth.py"
BUDGET = 3


def write_circuit(path: Path, heads: list[tuple[int, int]]) -> Path:
    steps = [{"tower": "vision", "layer": layer, "head": head} for layer, head in heads]
    path.write_text(json.dumps({"format": "hydractl-circuit", "version": 1, "objective": "avg", "steps": steps}))
    return path


@pytest.fixture
def circuits(tmp_path: Path) -> list[Path]:
    own = write_circuit(tmp_path / "own.json", [(0, 0), (1, 0), (1, 1), (1, 2), (0, 3)])
    common = write_circuit(tmp_path / "common.json", [(0, 1), (1, 3), (0, 2), (1, 1), (1, 0)])
    return [own, common]


def table(text: str) -> dict[str, dict[str, float]]:
    """The Markdown table that the script prints: figures by column, by row."""
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {row[0]: dict(zip(header[1:], map(float, row[1:]), strict=True)) for row in rows}


@pytest.mark.slow
def test_trunks_are_made_and_measured(
    hydractl: Command, vit: Path, images: Path, noise: Path, circuits: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = [vit, BUDGET, ",".join(map(str, circuits)), "0,1", images, f"noise={noise}", out]
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = table(done.stdout)
    assert list(found) == ["dense", "trunk 0", "trunk 1"]
    assert (out / "trunk_depth.png").read_bytes().startswith(b"\x89PNG")
    assert found["trunk 1"]["performed / dense"] < found["trunk 0"]["performed / dense"]

    for depth in (0, 1):
        summary = json.loads(hydractl("inspect", out / f"trunk{depth}.safetensors", "--json").out)
        assert summary["towers"]["vision"]["trunk_layers"] == depth
    single = hydractl("evaluate", f"dense={vit}", "--id-data", images, "--ood-data", f"noise={noise}", "--json", "-")
    dense = json.loads(single.out)["models"]["dense"]
    assert found["dense"]["accuracy"] == pytest.approx(dense["id"]["accuracy"], abs=1e-4)
    assert found["dense"]["AUROC"] == pytest.approx(dense["ood"]["noise"]["auroc"], abs=1e-4)
