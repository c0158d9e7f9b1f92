"""`hydractl prune --share-below`: members that have a trunk in common."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hydractl.checkpoint.heads import Head
from hydractl.data.hashes import sketch
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import Command
from tests.cli.test_prune import circuit, kept


def test_members_share_what_a_common_circuit_drops_below_a_layer(hydractl: Command, here: Path, vit: Path) -> None:
    hashes = np.arange(9, dtype=np.uint64) << np.uint64(40)
    shared, own_data = sketch(hashes[:6]), sketch(hashes[4:])
    (here / "common.json").write_text(json.dumps(circuit(search_data={"id": shared})))
    own = [Head("vision", 0, 1), Head("vision", 1, 2), Head("vision", 0, 3), Head("vision", 1, 1)]
    steps = [{"tower": head.tower, "layer": head.layer, "head": head.head} for head in own]
    (here / "own.json").write_text(json.dumps(circuit(steps=steps, search_data={"id": own_data})))
    options = ["--budget=3", "--share-below=1", "--common-circuit=common.json"]
    result = hydractl("prune", vit, "--method=circuit", "--circuit=own.json", *options)
    assert (result.code, result.out) == (0, "vit-circuit-3-share1.safetensors\n"), result.err
    # The common circuit's first three hold one head of layer 0; two of the member's own of layer 1 make up the budget.
    dropped = {Head("vision", 0, 0), Head("vision", 1, 2), Head("vision", 1, 1)}
    assert kept("vit-circuit-3-share1.safetensors") == kept(vit) - dropped
    remembered = read_checkpoint("vit-circuit-3-share1.safetensors").provenance["search_data"]
    assert remembered == {"id": sketch(hashes)}


@pytest.mark.parametrize("method", ["random", "magnitude"])
def test_members_pruned_above_a_common_circuit_have_a_trunk(
    hydractl: Command, here: Path, vit: Path, method: str
) -> None:
    (here / "common.json").write_text(json.dumps(circuit()))
    for seed in (0, 1):
        options = ["--budget=3", "--share-below=1", "--common-circuit=common.json", "-o", f"m{seed}"]
        seeded = ["--seed", seed] if method == "random" else []
        assert hydractl("prune", vit, "--method", method, *options, *seeded).code == 0
        assert {head for head in kept(f"m{seed}") if head.layer == 0} == {Head("vision", 0, h) for h in (1, 2, 3)}
        assert len(kept(f"m{seed}")) == 5


def test_a_trunk_keeps_all_heads_unless_a_circuit_says_which_go(hydractl: Command, here: Path, vit: Path) -> None:
    assert hydractl("prune", vit, "--method=random", "--budget=2", "--share-below=1", "-o", "m").code == 0
    assert {head for head in kept("m") if head.layer == 0} == {Head("vision", 0, h) for h in range(4)}
    assert len(kept("m")) == 6
