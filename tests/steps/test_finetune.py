import random
import signal
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from PIL import Image

import hydractl
from hydractl.checkpoint.contents import identity
from hydractl.errors import CheckpointError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.training.recipe import Recipe, to_toml
from tests.cli.conftest import HYDRACTL, LABELS, Command
from tests.steps.test_resume import KilledAfter

RECIPE = Recipe(optimizer="sgd", lr=(0.05,), batch=4, steps=3, flip=True, dropout=0.1)
OPTIONS: dict[str, Any] = {"val_split": 3, "device": "cpu", "seed": 7}
FLAGS = ("--val-split", 3, "--device", "cpu", "--seed", 7)


def test_the_call_and_the_command_write_the_same_bytes(run: Command, place: Path) -> None:
    (place / "mine.toml").write_text(to_toml(RECIPE))
    done = run("finetune", "vit", "--train-data=pets", "--recipe=mine.toml", *FLAGS, "-o", "command", code=0)
    result = hydractl.finetune("vit", train_data="pets", recipe=RECIPE, output="call", **OPTIONS)
    assert Path("call").read_bytes() == Path("command").read_bytes()
    assert sorted(path.name for path in Path("call.training").iterdir()) == [".hydractl.json", "curve.png", "log.jsonl"]
    [network] = result.networks
    assert network.output == Path("call") and network.validation is not None
    assert [entry["step"] for entry in network.log] == [1, 2, 2, 3, 3]
    assert f"accuracy {network.validation.accuracy:.4f}" in done.err and str(network) in repr(result)
    assert result.to_json()["networks"][0]["validation"] == asdict(network.validation)


def test_nothing_is_written_unless_asked_and_data_may_be_values(place: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    pairs = [(Image.fromarray(one), LABELS[number % 3]) for number, one in enumerate(pixels)]
    before = set(place.iterdir())
    dense = hydractl.load("vit")
    alone = hydractl.finetune(dense, train_data=pairs, recipe=RECIPE, device="cpu")
    both = hydractl.finetune(["vit", dense], train_data=pairs, recipe=RECIPE, settings={"lr": 0.01}, device="cpu")
    assert set(place.iterdir()) == before
    assert identity(alone.checkpoint) != identity(both.checkpoints[0]) != identity(both.checkpoints[1])
    assert hydractl.load(hydractl.fuse(both.checkpoints)).members == 2
    assert list(alone.lines()) == [f"vit: {alone.networks[0]}"]
    with pytest.raises(OptionError, match="2 .*`checkpoints`"):
        _ = both.checkpoint


def test_the_process_is_as_it_was(vit: Path, images: Path) -> None:
    states = torch.get_rng_state(), random.getstate()
    hydractl.finetune(vit, train_data=images, recipe=RECIPE, device="cpu")
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert not AcceleratorState._shared_state
    # So the next call may take another precision.
    hydractl.finetune(vit, train_data=images, recipe=RECIPE, device="cpu", precision="bf16")


def test_only_a_finished_run_and_one_with_a_file_are_resumed(place: Path) -> None:
    options: dict[str, Any] = {"train_data": "pets", "recipe": RECIPE, "device": "cpu", "resume": True}
    hydractl.finetune("vit", **options, output="m1")
    [again] = hydractl.finetune("vit", **options, output="m1").networks
    assert (again.lr, again.steps, again.validation) == (0.05, 3, None)
    hydractl.fuse(["vit", "vit"], output="fused")
    with pytest.raises(CheckpointError, match="fused: was not made"):
        hydractl.finetune("vit", **options, output="fused")
    with pytest.raises(OptionError, match="`output`"):
        hydractl.finetune("vit", **options)


def test_a_watcher_is_told_of_every_step(vit: Path, images: Path) -> None:
    watch = KilledAfter(6)
    hydractl.finetune(vit, train_data=images, recipe=RECIPE, lr_grid=[0.01, 0.05], val_split=3, watch=watch)
    assert (watch.total, watch.left) == (6, 0)


FAST = ("--train-data=pets", "--set=optimizer=sgd", "--set=lr=0.05", "--set=batch=4", "--steps=3", "--device=cpu")


@pytest.mark.slow
def test_killed_and_resumed_gives_the_bits_of_an_uninterrupted_run(run: Command, place: Path) -> None:
    options = "--set optimizer=adamw --set lr=0.01 --set batch=4 --set flip=true --set dropout=0.1"
    options += " --set validate_every=7 --steps 60 --val-split 3 --save-every 3 --device cpu"
    train = ["finetune", "vit", "--train-data=pets", *options.split(), "-o"]
    assert run(*train, "whole").code == 0
    process = subprocess.Popen([*HYDRACTL, *train, "killed"], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not Path("killed.training/state.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not Path("killed").exists()
    assert run(*train, "killed", "--resume").code == 0
    assert Path("killed").read_bytes() == Path("whole").read_bytes()


def test_a_hydra_trains_member_by_member_or_jointly(run: Command, place: Path) -> None:
    members = [hydractl.prune("vit", method="random", budget=2, seed=seed, output=f"p{seed}") for seed in (0, 1)]
    hydractl.fuse(members, output="hydra")
    train = ("finetune", "hydra", *FAST)
    assert "hydra: has 2 members: train each with --apart, or all with --joint" in run(*train, "-o", "x").err
    assert run(*train, "--apart", "-o", "apart/").out.split() == [f"apart/hydra-member{m}.safetensors" for m in (0, 1)]
    run("finetune", "p1", *FAST, "--seed", 1, "-o", "alone")
    apart = read_checkpoint("apart/hydra-member1.safetensors")
    assert identity(apart) == identity(read_checkpoint("alone"))
    assert run(*train, "--joint", "-o", "joint").code == 0
    joint, hydra = read_checkpoint("joint"), read_checkpoint("hydra")
    assert joint.members == 2 and joint.shared == hydra.shared
    assert identity(joint) != identity(hydra)
