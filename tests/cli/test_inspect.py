"""`hydractl inspect` shows what a trunk saves."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command


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
    trunk = fused("--share-below", 1, "--common-circuit", tmp_path / "common.json")
    assert trunk["towers"]["vision"]["trunk_layers"] >= 1
    assert trunk["multiply_adds"] < apart["multiply_adds"] < 2 * apart["dense_multiply_adds"]
    assert "x one network with every head" in hydractl("inspect", tmp_path / "hydra").out
