"""`hydractl fuse` and `hydractl inspect`: what a person and a Makefile see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hydractl.families import FAMILIES
from tests.cli.conftest import LABELS, Command


@pytest.fixture
def members(hydractl: Command, vit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        hydractl("prune", vit, "--method=random", "--budget=3", f"--seed={seed}", "-o", f"m{seed}")
    return ["m0", "m1", "m2"]


def test_inspect_maps_the_heads_of_each_member(hydractl: Command, vit: Path, tmp_path: Path) -> None:
    circuit = tmp_path / "c.json"
    steps = [{"tower": "vision", "layer": 1, "head": 0}, {"tower": "vision", "layer": 1, "head": 3}]
    circuit.write_text(json.dumps({"format": "hydractl-circuit", "version": 1, "steps": steps}))
    for budget in (1, 2):
        arguments = ("--method=circuit", f"--circuit={circuit}", f"--budget={budget}", "-o", tmp_path / f"m{budget}")
        assert hydractl("prune", vit, *arguments).code == 0
    hydractl("fuse", tmp_path / "m1", tmp_path / "m2", "-o", tmp_path / "hydra")
    lines = hydractl("inspect", tmp_path / "hydra").out.splitlines()
    assert "  layer  0  ■■■■  ■■■■  4+4" in lines
    assert "  layer  1  ·■■■  ·■■·  3+2" in lines
    assert "  trunk: 1 leading layers shared by all members" in lines
    assert "  members     2" in lines
    assert f"  labels      3: {', '.join(LABELS)}" in lines


def test_inspect_json_counts_what_the_file_stores(hydractl: Command, vit: Path) -> None:
    summary = json.loads(hydractl("inspect", vit, "--json").out)
    # 8x8 colour images in 4x4 patches, 2 layers of width 16 and MLP 24, 3 classes.
    embeddings = 16 * 3 * 4 * 4 + 16 + 16 + 5 * 16
    layer = 4 * (16 * 16 + 16) + 2 * 2 * 16 + 16 * 24 + 24 + 24 * 16 + 16
    assert summary["parameters"] == embeddings + 2 * layer + 2 * 16 + 3 * 16 + 3
    assert summary["towers"]["vision"]["kept_heads"] == [[[0, 1, 2, 3]], [[0, 1, 2, 3]]]
    assert summary["dtypes"] == ["float32"]


def test_every_family_is_listed(hydractl: Command) -> None:
    listed = json.loads(hydractl("list", "families", "--json").out)
    assert [one["name"] for one in listed["families"]] == [family.name for family in FAMILIES]
    assert {"albert", "swin"} <= listed["refused"].keys()
