"""`hydractl prune`: which heads go, what the file is called, which artifacts are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import Command

RANKING = [Head("vision", 1, 3), Head("vision", 0, 0), Head("vision", 1, 0), Head("vision", 0, 2)]


def circuit(**changes: Any) -> dict[str, Any]:
    steps = [{"tower": head.tower, "layer": head.layer, "head": head.head} for head in RANKING]
    return {"format": "hydractl-circuit", "version": 1, "steps": steps, **changes}


def scores(**changes: Any) -> dict[str, Any]:
    rows = [[0.9, 0.1, 0.8, 0.7], [0.2, 0.6, 0.05, 0.5]]
    return {"format": "hydractl-scores", "version": 1, "towers": {"vision": rows}, **changes}


def reference(model: Path) -> dict[str, str]:
    return {"reference": str(model), "sha256": identity(read_checkpoint(model))}


def kept(path: str | Path) -> set[Head]:
    return set(member_heads(read_checkpoint(path).heads, 0))


@pytest.fixture
def everything(vit: Path) -> set[Head]:
    return kept(vit)


def test_the_plain_command_works_beside_a_circuit(
    hydractl: Command, here: Path, vit: Path, everything: set[Head]
) -> None:
    (here / "circuit.json").write_text(json.dumps(circuit(objective="avg", model=reference(vit))))
    result = hydractl("prune", "--method", "circuit", "--budget", "2")
    assert (result.code, result.out) == (0, "vit-circuit-avg-2.safetensors\n")
    assert kept("vit-circuit-avg-2.safetensors") == everything - set(RANKING[:2])


def test_a_circuit_from_standard_input(hydractl: Command, here: Path, vit: Path, everything: set[Head]) -> None:
    text = json.dumps(circuit()).encode()
    result = hydractl("prune", vit, "--method=circuit", "--budget=1", "--circuit=-", stdin=text)
    assert result.out == "vit-circuit-1.safetensors\n"
    assert kept("vit-circuit-1.safetensors") == everything - {RANKING[0]}


def test_a_pool_draws_among_the_first_of_the_circuit(
    hydractl: Command, here: Path, vit: Path, everything: set[Head]
) -> None:
    (here / "circuit.json").write_text(json.dumps(circuit(objective="acc")))
    drawn = set()
    for seed in range(6):
        arguments = ("prune", vit, "--method=circuit", "--budget=2", "--pool=3", f"--seed={seed}")
        path = hydractl(*arguments).out.strip()
        assert path == f"vit-circuit-acc-2-pool3-seed{seed}.safetensors"
        dropped = everything - kept(path)
        assert len(dropped) == 2
        assert dropped <= set(RANKING[:3])
        drawn.add(frozenset(dropped))
    assert len(drawn) > 1


@pytest.mark.parametrize(
    ("scope", "dropped"),
    [
        ("global", {Head("vision", 1, 2), Head("vision", 0, 1)}),
        ("layer", {Head("vision", 0, 1), Head("vision", 1, 2)}),
    ],
)
def test_scores_lose_their_lowest(
    hydractl: Command, here: Path, vit: Path, everything: set[Head], scope: str, dropped: set[Head]
) -> None:
    (here / "scores.json").write_text(json.dumps(scores(method="taylor")))
    result = hydractl("prune", vit, "--method=scores", "--budget=2", f"--scope={scope}")
    assert result.out == f"vit-scores-taylor-{scope}-2.safetensors\n"
    assert everything - kept(result.out.strip()) == dropped


def test_random_members_differ_by_seed_and_only_by_seed(hydractl: Command, here: Path, vit: Path) -> None:
    first = hydractl("prune", vit, "--method=random", "--budget=3", "--seed=1").out.strip()
    assert first == "vit-random-3-seed1.safetensors"
    hydractl("prune", vit, "--method=random", "--budget=3", "--seed=1", "-o", "again")
    hydractl("prune", vit, "--method=random", "--budget=3", "--seed=2", "-o", "other")
    assert Path(first).read_bytes() == Path("again").read_bytes()
    assert kept(first) != kept("other")
    assert len(kept(first)) == len(kept("other")) == 5


def test_provenance_says_how_but_not_where_or_when(hydractl: Command, here: Path, vit: Path) -> None:
    record = {"search": {"samples": 1, "complete": True, "hashes": "eJxjYGBgAAAABAAB"}}
    (here / "c.json").write_text(json.dumps(circuit(objective="ood", search_data=record)))
    hydractl("prune", vit, "--method=circuit", "--budget=1", "--circuit=c.json", "-o", "m1")
    provenance = read_checkpoint("m1").provenance
    assert provenance["command"] == "prune"
    assert provenance["options"] == {"method": "circuit", "budget": 1, "objective": "ood"}
    assert provenance["search_data"] == record
    assert provenance["inputs"] == [{"sha256": reference(vit)["sha256"]}]
    assert str(here) not in json.dumps(dict(provenance))


def test_numbers_keep_their_precision_unless_another_is_asked_for(hydractl: Command, here: Path, vit: Path) -> None:
    for name, options in (("same", ()), ("half", ("--dtype=bfloat16",))):
        hydractl("prune", vit, "--method=random", "--budget=1", "-o", name, *options)
    same, half = read_checkpoint("same"), read_checkpoint("half")
    assert {tensor.dtype for tensor in same.tensors.values()} == {torch.float32}
    for name, tensor in half.tensors.items():
        assert torch.equal(tensor.load(), same.tensors[name].load().bfloat16())
    assert half.provenance["options"]["dtype"] == "bfloat16"
    hydractl("fuse", "same", vit, "-o", "hydra", "--dtype=float16")
    assert {tensor.dtype for tensor in read_checkpoint("hydra").tensors.values()} == {torch.float16}


def test_the_change_the_next_step_and_layers_without_heads_are_noted(hydractl: Command, here: Path, vit: Path) -> None:
    changed, following = hydractl("prune", vit, "--method=random", "--budget=33%", "-o", "a member").err.splitlines()
    dense, pruned = (
        sum(tensor.load().numel() for tensor in read_checkpoint(path).tensors.values()) for path in (vit, "a member")
    )
    assert changed.startswith(f"heads 8 -> 5, parameters {dense / 1e3:.2f} k -> {pruned / 1e3:.2f} k")
    assert changed.endswith(f"file {(here / 'a member').stat().st_size / 1e3:.2f} kB")
    assert "hydractl fuse 'a member'" in following
    layer = [{"tower": "vision", "layer": 1, "head": head} for head in range(4)]
    (here / "circuit.json").write_text(json.dumps(circuit(steps=layer)))
    assert "layer 1 of the vision tower" in hydractl("prune", vit, "--method=circuit", "--budget=4", "-o", "m1").err
    quiet = hydractl("prune", vit, "--method=random", "--budget=100%", "-o", "m2", "--quiet")
    assert (quiet.out, quiet.err) == ("m2\n", "")
