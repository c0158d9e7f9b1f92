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
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


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


def test_magnitude_json_names_what_was_dropped(hydractl: Command, here: Path, vit: Path, everything: set[Head]) -> None:
    result = json.loads(hydractl("prune", vit, "--method=magnitude", "--budget=3", "--json").out)
    assert result["output"] == "vit-magnitude-3.safetensors"
    assert {Head(**head) for head in result["dropped"]} == everything - kept(result["output"])


def test_an_existing_output_is_kept_unless_forced(hydractl: Command, here: Path, vit: Path) -> None:
    (here / "m1").write_text("precious")
    arguments = ("prune", vit, "--method=random", "--budget=1", "-o", "m1")
    assert (result := hydractl(*arguments)).code == 1
    assert result.err == "error: m1: exists already: remove it, name another output or pass --force\n"
    assert (here / "m1").read_text() == "precious"
    assert hydractl(*arguments, "--force").code == 0
    assert len(kept("m1")) == 7


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method=random", "--budget=9"], "--budget 9: expected 0 to 8, the heads there are, or a share as in 33%"),
        (["--method=random", "--budget=-1"], "--budget -1: expected 0 to 8"),
        (["--method=random", "--budget=1", "--pool=3"], "--pool has no effect with --method random"),
        (["--method=circuit", "--budget=1", "--scope=layer"], "--scope has no effect with --method circuit"),
        (["--method=magnitude", "--budget=1", "--circuit=c"], "--circuit has no effect with --method magnitude"),
        (["--method=guess", "--budget=1"], "Invalid value for '--method'"),
        (["--method=taylor-oneshot", "--budget=1"], "--method taylor-oneshot needs --data"),
        (["--method=taylor", "--budget=1", "--share-below=1", "--common-circuit=c"], "--share-below has no effect"),
        (["--method=random"], "--budget is missing"),
    ],
)
def test_options_that_make_no_sense(
    hydractl: Command, here: Path, vit: Path, arguments: list[str], message: str
) -> None:
    result = hydractl("prune", vit, *arguments)
    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1


def test_members_are_pruned_before_they_are_fused(hydractl: Command, here: Path, vit: Path) -> None:
    for seed in (0, 1):
        hydractl("prune", vit, "--method=random", "--budget=1", f"--seed={seed}", "-o", f"m{seed}")
    hydractl("fuse", "m0", "m1", "-o", "hydra")
    result = hydractl("prune", "hydra", "--method=random", "--budget=1")
    assert (result.code, result.err) == (2, "error: hydra: has 2 members: prune each before fusing them\n")


def test_a_full_disk_leaves_nothing_behind(
    hydractl: Command, here: Path, vit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    result = hydractl("prune", vit, "--method=random", "--budget=1", "-o", "m1")
    assert result.code == 1
    assert result.err.startswith("error: m1: cannot write: No space left on device")
    assert list(here.iterdir()) == []


def test_taylor_scores_come_with_a_word_of_caution(hydractl: Command, here: Path, vit: Path) -> None:
    (here / "scores.json").write_text(json.dumps(scores(method="taylor")))
    loud = hydractl("prune", vit, "--method=scores", "--budget=1", "-o", "m1")
    assert loud.code == 0
    assert [line[:5] for line in loud.err.splitlines()] == ["note:", "heads", "next:"]
    assert hydractl("prune", vit, "--method=scores", "--budget=1", "-o", "m2", "--quiet").err == ""


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


def test_what_changed_and_what_comes_next(hydractl: Command, here: Path, vit: Path) -> None:
    result = hydractl("prune", vit, "--method=random", "--budget=33%", "-o", "a member")
    changed, following = result.err.splitlines()
    dense, pruned = (
        sum(tensor.load().numel() for tensor in read_checkpoint(p).tensors.values()) for p in (vit, "a member")
    )
    size = (here / "a member").stat().st_size
    assert changed.startswith(
        f"heads 8 -> 5, parameters {dense / 1e3:.2f} k -> {pruned / 1e3:.2f} k ({pruned / dense:.2f} x), "
    )
    assert changed.endswith(f", file {size / 1e3:.2f} kB")
    assert following.startswith("next: hydractl fuse 'a member' OTHER... -o hydra.safetensors")
    quiet = hydractl("prune", vit, "--method=random", "--budget=33%", "-o", "again", "--quiet")
    assert (quiet.out, quiet.err) == ("again\n", "")
    assert Path("again").read_bytes() == Path("a member").read_bytes()


def test_layers_and_networks_without_heads_are_noted(hydractl: Command, here: Path, vit: Path) -> None:
    (here / "circuit.json").write_text(
        json.dumps(circuit(steps=[{"tower": "vision", "layer": 1, "head": head} for head in range(4)]))
    )
    bare = hydractl("prune", vit, "--method=circuit", "--budget=4", "-o", "m1")
    assert bare.err.splitlines()[0] == "note: no head is left in layer 1 of the vision tower"
    gone = hydractl("prune", vit, "--method=random", "--budget=100%", "-o", "m2")
    assert gone.err.startswith("note: no head is left: no token reads another")
