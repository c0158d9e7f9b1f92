"""Weights that are pruned one by one: which they are, and that no training brings them back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import hydractl
from hydractl.checkpoint.slots import linear_weights
from hydractl.errors import OptionError
from hydractl.families.open import read_checkpoint
from hydractl.inference import load_checkpoint
from hydractl.surgery.weights import lowest
from hydractl.training.recipe import Recipe
from tests.cli.conftest import Command
from tests.steps.test_resume import Killed, killed_after


def numbers(path: Path | str) -> dict[str, Tensor]:
    checkpoint = read_checkpoint(str(path))
    return {name: checkpoint.tensors[name].load() for name in linear_weights(checkpoint.spec)}


def zeros(path: Path | str) -> dict[str, Tensor]:
    return {name: weight == 0 for name, weight in numbers(path).items()}


@pytest.fixture
def sparse(vit: Path, images: Path, tmp_path: Path) -> Path:
    hydractl.prune(vit, method="oba", keep="60%", data=images, output=tmp_path / "sparse")
    return tmp_path / "sparse"


def test_the_lowest_go_and_the_first_among_equals() -> None:
    values = torch.tensor([3.0, 1.0, 2.0, 1.0, 2.0, 2.0])
    assert lowest(values, 0).tolist() == [False] * 6
    assert lowest(values, 4).tolist() == [False, True, True, True, True, False]
    assert lowest(values, 6).tolist() == [True] * 6


def test_a_share_of_all_parameters_stays(sparse: Path, vit: Path) -> None:
    dense, kept = numbers(vit), numbers(sparse)
    gone = zeros(sparse)
    total = sum(parameter.numel() for parameter in hydractl.load(vit).parameters())
    assert sum(int(places.sum()) for places in gone.values()) == round(0.4 * total)
    assert not any((weight == 0).any() for weight in dense.values())
    for name, weight in kept.items():
        assert torch.equal(weight, dense[name].masked_fill(gone[name], 0))
    assert read_checkpoint(str(sparse)).sparse
    assert any(line.startswith("  sparse ") for line in hydractl.inspect(sparse).lines())


def test_the_command_writes_the_same_bytes(run: Command, vit: Path, images: Path, sparse: Path, tmp_path: Path) -> None:
    done = run("prune", vit, "--method=oba", "--keep=60%", f"--data={images}", "-o", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == sparse.read_bytes()
    assert "parameters other than zero" in done.err
    third = hydractl.prune(vit, method="oba", keep="60%", order=3, data=images, samples=4, seed=1, output=tmp_path)
    assert third.output == tmp_path / "vit-oba-keep60%-seed1.safetensors"
    assert any(not torch.equal(a, b) for a, b in zip(zeros(third.output).values(), zeros(sparse).values(), strict=True))


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_zeros_stay_through_training_and_resume(sparse: Path, images: Path, tmp_path: Path, optimizer: str) -> None:
    recipe = Recipe(optimizer=optimizer, lr=(0.02,), batch=4, steps=4, weight_decay=0.1, clip=1.0)
    asked = {"models": sparse, "data": images, "recipe": recipe, "device": "cpu", "save_every": 1, "resume": True}
    hydractl.finetune(**asked, output=tmp_path / "whole")
    with pytest.raises(Killed):
        hydractl.finetune(**asked, output=tmp_path / "tuned", watch=killed_after(2))
    hydractl.finetune(**asked, output=tmp_path / "tuned")
    assert (tmp_path / "tuned").read_bytes() == (tmp_path / "whole").read_bytes()
    before, after = zeros(sparse), zeros(tmp_path / "tuned")
    assert all(torch.equal(before[name], after[name]) for name in before)
    moved = zip(numbers(sparse).values(), numbers(tmp_path / "tuned").values(), strict=True)
    assert all(not torch.equal(a, b) for a, b in moved)


def test_a_fused_network_of_sparse_members_is_one(sparse: Path, vit: Path, tmp_path: Path) -> None:
    fused = hydractl.fuse([vit, sparse], separate="all").checkpoint
    assert fused.sparse
    assert not read_checkpoint(str(vit)).sparse
    weight = load_checkpoint(fused).get_parameter("vision.layers.0.mlp.fc1.weight")
    assert torch.equal(weight[1] == 0, zeros(sparse)["vision.layers.0.mlp.fc1.weight"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "oba", "keep": "60%"}, "`method` oba needs `data`"),
        ({"method": "oba", "data": "images"}, "`method` oba needs `keep`"),
        ({"method": "oba", "budget": 2}, "`budget` counts heads, `method` oba takes weights: give `keep`"),
        ({"method": "oba", "keep": "60%", "scope": "layer"}, "`scope` has no effect with `method` oba"),
        ({"method": "oba", "keep": "lots", "data": "images"}, "`keep` lots: expected a share"),
        ({"method": "oba", "keep": "101%", "data": "images"}, "`keep` 101%: expected a share"),
        ({"method": "oba", "keep": 0.0, "data": "images"}, "`keep` 0.0: [0-9.]+% of the parameters are no such"),
        ({"method": "oba", "keep": "60%", "data": "images", "towers": "text"}, "has no text tower"),
        ({"method": "random", "budget": 2, "keep": "60%"}, "`keep` has no effect with `method` random"),
        ({"method": "random", "budget": 2, "order": 3}, "`order` has no effect with `method` random"),
    ],
)
def test_what_makes_no_sense_is_refused(vit: Path, images: Path, options: dict[str, object], message: str) -> None:
    if options.get("data") == "images":
        options = {**options, "data": images}
    with pytest.raises(OptionError, match=message):
        hydractl.prune(vit, **options)


def test_a_file_of_several_members_is_refused(vit: Path, images: Path) -> None:
    two = hydractl.fuse([vit, hydractl.prune(vit, method="random", budget=2).checkpoint]).checkpoint
    with pytest.raises(OptionError, match="has 2 members: prune each before fusing"):
        hydractl.prune(two, method="oba", keep="60%", data=images)
