"""What was selected is made again from the selection's file, byte for byte, and no other networks are."""

from __future__ import annotations

import json
from pathlib import Path

import torch

import hydractl
from hydractl.checkpoint.heads import member_heads
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import Command, circuit, save_circuit


def test_fuse_and_prune_make_what_was_selected(run: Command, here: Path, vit: Path, images: Path, noise: Path) -> None:
    arguments = ("--circuit=a.json", "--budgets=1,2", "--members=2", "--id-data", images, "--ood-data", noise)
    save_circuit("a.json", (1, 0), (1, 2), (0, 0), (0, 2))
    folder = here / "chosen"
    folder.mkdir()
    run("select", vit, *arguments, "--hydra", "hydra", "-o", f"{folder}/s.json", "--quiet")
    whole = Path("hydra").read_bytes()
    assert run("fuse", "--selection=chosen/s.json", "-o", "f").out == "f\n"
    assert Path("f").read_bytes() == whole
    chosen = hydractl.select(vit, circuit=["a.json"], budgets="1,2", members="2", id_data=images, ood_data=noise)
    hydractl.save(hydractl.fuse(selection=chosen), "g")
    assert Path("g").read_bytes() == whole
    made = run("prune", "--selection=chosen/s.json", "-o", "m{member}")
    assert made.out.splitlines() == ["m0", "m1"]
    run("fuse", "m0", "m1", "-o", "again")
    refused = run("evaluate", "m0", "--id-data", images)
    assert (refused.code, "selection" in refused.err) == (1, True)
    first, second = read_checkpoint("hydra"), read_checkpoint("again")
    assert first.heads == second.heads and first.shared == second.shared
    assert all(torch.equal(tensor.load(), second.tensors[name].load()) for name, tensor in first.tensors.items())
    apart = hydractl.fuse(selection="chosen/s.json", separate="all").checkpoint
    assert apart.provenance["options"]["separate"] != first.provenance["options"].get("separate")


def test_files_that_were_selected_are_found_by_what_they_hold(
    run: Command, here: Path, vit: Path, images: Path
) -> None:
    for seed in (0, 1):
        run("prune", vit, "--method=random", "--budget=2", f"--seed={seed}", "-o", f"m{seed}")
    data = ("--id-data", images, "--objective=nll", "--members=3")
    run("select", vit, "m0", "m1", *data, "--hydra", "hydra", "-o", "s.json")
    run("fuse", "--selection=s.json", "-o", "f")
    assert Path("f").read_bytes() == Path("hydra").read_bytes()
    Path("m0").rename("moved")
    assert "m0" in run("fuse", "--selection=s.json", "-o", "g").err
    assert run("fuse", "moved", "--selection=s.json", "-o", "g").code == 0
    assert Path("g").read_bytes() == Path("hydra").read_bytes()
    Path("m1").write_bytes(Path("moved").read_bytes())
    changed = run("fuse", "moved", "--selection=s.json", "-o", "h")
    assert (changed.code, "was made from another model" in changed.err) == (1, True)


def test_a_selection_written_by_hand(here: Path, vit: Path) -> None:
    members = [{"dropped": circuit((0, 1))["steps"]}, {"dropped": []}]
    Path("s.json").write_text(json.dumps({"format": "hydractl-selection", "version": 1, "members": members}))
    hydra = hydractl.fuse([vit], selection="s.json").checkpoint
    assert [len(member_heads(hydra.heads, number)) for number in (0, 1)] == [7, 8]
