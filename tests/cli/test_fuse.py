"""`hydractl fuse` and `hydractl inspect`: what a person and a Makefile see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hydractl.families import FAMILIES
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import LABELS, Command, save_vit


@pytest.fixture
def members(hydractl: Command, vit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        hydractl("prune", vit, "--method=random", "--budget=3", f"--seed={seed}", "-o", f"m{seed}")
    return ["m0", "m1", "m2"]


def test_a_fused_file_can_be_fused_again(hydractl: Command, members: list[str]) -> None:
    hydractl("fuse", *members[:2], "-o", "two")
    hydractl("fuse", "two", members[2], "-o", "three")
    hydractl("fuse", *members, "-o", "at-once")
    at_once = read_checkpoint("at-once").tensors
    for name, tensor in read_checkpoint("three").tensors.items():
        assert torch.equal(tensor.load(), at_once[name].load())


def test_dense_members_kept_separate_are_a_deep_ensemble(hydractl: Command, vit: Path, tmp_path: Path) -> None:
    other = save_vit(tmp_path / "other", seed=1)
    hydractl("fuse", vit, other, "--separate", "all", "-o", tmp_path / "deep")
    summary = json.loads(hydractl("inspect", tmp_path / "deep", "--json").out)
    single = json.loads(hydractl("inspect", vit, "--json").out)
    assert summary["members"] == 2
    # Only what both checkpoints start from alike is stored once: here the zeros of biases and the ones of norms.
    apart = [name for name in summary["separate"] if name in ("attention", "mlp", "classifier", "embeddings")]
    assert apart == ["attention", "classifier", "embeddings", "mlp"]
    assert single["parameters"] < summary["parameters"] <= 2 * single["parameters"]


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


def test_the_change_the_next_step_and_degenerate_members_are_noted(
    hydractl: Command, members: list[str], vit: Path
) -> None:
    note, changed, following = hydractl("fuse", "m0", "m1", "-o", "two").err.splitlines()
    apart = sum(tensor.load().numel() for name in ("m0", "m1") for tensor in read_checkpoint(name).tensors.values())
    fused = sum(tensor.load().numel() for tensor in read_checkpoint("two").tensors.values())
    assert changed.startswith(f"2 members of 5+5 heads, parameters {apart / 1e3:.2f} k -> {fused / 1e3:.2f} k")
    assert note.startswith("note: ") and "hydra=two" in following
    hydractl("prune", vit, "--method=magnitude", "--budget=8", "-o", "bare")
    odd = hydractl("fuse", "m0", "bare", "m0", "-o", "odd").err
    assert "members 1, 3 are identical" in odd and "member 2: no head is left" in odd
    assert hydractl("fuse", "m0", "m0", "-o", "same", "--quiet").err == ""


def test_the_cost_falls_as_the_trunk_grows(hydractl: Command, vit: Path, tmp_path: Path) -> None:
    steps = [{"tower": "vision", "layer": 0, "head": 1}]
    (tmp_path / "common.json").write_text(json.dumps({"format": "hydractl-circuit", "version": 1, "steps": steps}))

    def fused(*options: object) -> dict[str, object]:
        members = [tmp_path / f"m{seed}" for seed in (1, 2)]
        for seed, member in enumerate(members):
            rest = ["--seed", seed, "-o", member, "--force"]
            made = hydractl("prune", vit, "--method", "random", "--budget", 1, *options, *rest)
            assert made.code == 0, made.err
        hydractl("fuse", *members, "-o", tmp_path / "hydra", "--force")
        summary: dict[str, object] = json.loads(hydractl("inspect", tmp_path / "hydra", "--json").out)
        return summary

    apart = fused()
    trunk = fused("--trunk", 1, "--common-circuit", tmp_path / "common.json")
    assert trunk["towers"]["vision"]["trunk_layers"] >= 1
    assert trunk["multiply_adds"] < apart["multiply_adds"] < 2 * apart["dense_multiply_adds"]
    assert "x one network with every head" in hydractl("inspect", tmp_path / "hydra").out


def test_every_family_is_listed(hydractl: Command) -> None:
    result = hydractl("list", "families")
    assert result.code == 0
    names = [line.split()[0] for line in result.out.split("\n\n")[0].splitlines()]
    assert names == [family.name for family in FAMILIES]
    assert "swin: its attention works in windows" in result.out


def test_json(hydractl: Command) -> None:
    listed = json.loads(hydractl("list", "families", "--json").out)
    assert {family["name"]: family["verified_against"] for family in listed["families"]}["timm"] == "timm"
    assert "albert" in listed["refused"]
