"""`hydractl.finetune`: the bytes of the command, nothing written unless asked, the process left as it was."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from PIL import Image
from transformers import ViTModel

import hydractl
from hydractl.checkpoint.contents import identity
from hydractl.errors import CheckpointError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.training.recipe import Recipe, to_toml
from hydractl.watch import Advance, Log
from tests.cli.conftest import HYDRACTL, LABELS, Command
from tests.references import make_timm, save_timm

RECIPE = Recipe(optimizer="sgd", lr=(0.05,), batch=4, steps=3, flip=True, dropout=0.1)
OPTIONS: dict[str, Any] = {"val_split": 3, "device": "cpu", "seed": 7}
FLAGS = ("--val-split", 3, "--device", "cpu", "--seed", 7)


def test_the_call_and_the_command_write_the_same_bytes(run: Command, vit: Path, images: Path, here: Path) -> None:
    (here / "mine.toml").write_text(to_toml(RECIPE))
    done = run("finetune", vit, "--train-data", images, "--recipe", "mine.toml", *FLAGS, "-o", "command")
    assert done.code == 0, done.err
    result = hydractl.finetune(vit, train_data=images, recipe=RECIPE, output="call", **OPTIONS)
    assert Path("call").read_bytes() == Path("command").read_bytes()
    assert sorted(path.name for path in Path("call.training").iterdir()) == [".hydractl.json", "curve.png", "log.jsonl"]
    [network] = result.networks
    assert network.output == Path("call") and network.validation is not None
    assert [entry["step"] for entry in network.log] == [1, 2, 2, 3, 3]
    assert f"accuracy {network.validation.accuracy:.4f}" in done.err and str(network) in repr(result)
    assert result.to_json()["networks"][0]["validation"] == asdict(network.validation)


def test_nothing_is_written_unless_asked_and_data_may_be_values(vit: Path, images: Path, here: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    pairs = [(Image.fromarray(one), LABELS[number % 3]) for number, one in enumerate(pixels)]
    (here / "mine.toml").write_text(to_toml(RECIPE))
    before = set(here.iterdir())
    dense = hydractl.load(vit)
    alone = hydractl.finetune(dense, train_data=pairs, recipe="mine.toml", device="cpu")
    both = hydractl.finetune([vit, dense], train_data=pairs, recipe=RECIPE, settings={"lr": 0.01}, device="cpu")
    assert set(here.iterdir()) == before
    assert identity(alone.checkpoint) != identity(both.checkpoints[0]) != identity(both.checkpoints[1])
    assert hydractl.load(hydractl.fuse(both.checkpoints)).members == 2
    assert list(alone.lines()) == [f"vit: {alone.networks[0]}"]
    with pytest.raises(OptionError, match="2 networks .*`checkpoints`"):
        _ = both.checkpoint


def test_the_process_is_as_it_was(vit: Path, images: Path) -> None:
    states = torch.get_rng_state(), random.getstate()
    hydractl.finetune(vit, train_data=images, recipe=RECIPE, device="cpu")
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert not AcceleratorState._shared_state
    # So the next call may take another precision.
    hydractl.finetune(vit, train_data=images, recipe=RECIPE, device="cpu", precision="bf16")


def test_a_finished_run_is_not_done_again(vit: Path, images: Path, here: Path) -> None:
    options: dict[str, Any] = {"train_data": images, "recipe": RECIPE, "device": "cpu", "output": "m1"}
    first = hydractl.finetune(vit, **options)
    again = hydractl.finetune(vit, resume=True, **options)
    assert identity(again.checkpoint) == identity(first.checkpoint)
    assert (again.networks[0].lr, again.networks[0].steps, again.networks[0].validation) == (0.05, 3, None)
    hydractl.fuse([vit, vit], output=Path("fused"))
    with pytest.raises(CheckpointError, match="fused: was not made by fine-tuning"):
        hydractl.finetune(vit, resume=True, **{**options, "output": "fused"})
    with pytest.raises(OptionError, match="`output`"):
        hydractl.finetune(vit, resume=True, **{**options, "output": None})


def test_a_watcher_is_told_of_every_step(vit: Path, images: Path) -> None:
    told = Told()
    hydractl.finetune(
        vit, train_data=images, recipe=RECIPE, device="cpu", lr_grid=[0.01, 0.05], val_split=3, watch=told
    )
    assert (told.total, sum(told.done), len(told.notes)) == (6, 6, 1)


class Told(Log):
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.done: list[float] = []
        self.total: float | None = None

    def note(self, message: str) -> None:
        self.notes.append(message)

    @contextmanager
    def progress(self, what: str, total: float | None) -> Iterator[Advance]:
        self.total = total
        yield lambda done, said=None: self.done.append(done)


FAST = ("--set", "optimizer=sgd", "--set", "lr=0.05", "--set", "batch=4", "--steps", "3", "--device", "cpu")


@pytest.mark.slow
def test_killed_and_resumed_gives_the_bits_of_an_uninterrupted_run(
    run: Command, vit: Path, images: Path, here: Path
) -> None:
    options = "--set optimizer=adamw --set lr=0.01 --set batch=4 --set flip=true --set dropout=0.1"
    options += " --set validate_every=7 --steps 60 --val-split 3 --save-every 3 --device cpu"
    train = ["finetune", str(vit), "--train-data", str(images), *options.split(), "-o"]
    assert run(*train, "whole").code == 0
    process = subprocess.Popen([*HYDRACTL, *train, "killed"], stderr=subprocess.PIPE)
    folder = here / "killed.training"
    deadline = time.monotonic() + 120
    while not (folder / "state.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (here / "killed").exists()
    assert run(*train, "killed", "--resume").code == 0
    assert (here / "killed").read_bytes() == (here / "whole").read_bytes()


def save_base(library: str, folder: Path, vit: Path) -> Path:
    if library == "timm":
        save_timm(make_timm("vit_tiny_patch16_224", img_size=8, patch_size=4, depth=2, num_classes=0), folder)
        return folder
    ViTModel.from_pretrained(vit).save_pretrained(folder)
    shutil.copy(vit / "preprocessor_config.json", folder)
    return folder


@pytest.mark.parametrize("library", ["transformers", "timm"])
def test_a_base_network_gets_the_data_s_classifier(
    library: str, run: Command, vit: Path, images: Path, here: Path
) -> None:
    train = ("finetune", save_base(library, here / "base", vit), "--train-data", images, *FAST, "-o", "m1")
    refused = run(*train)
    assert refused.code == 1 and "with --new-classifier" in refused.err
    assert run(*train, "--new-classifier", "zeros").code == 0
    trained = read_checkpoint("m1")
    assert trained.labels == ("cat", "dog", "owl") and trained.tensors["classifier.weight"].load().any()
    report = run("evaluate", "m1", "--id-data", images, "--allow-leak", "--device", "cpu")
    assert report.code == 0, report.err


def test_a_hydra_trains_member_by_member_or_jointly(run: Command, vit: Path, images: Path, here: Path) -> None:
    for seed in (0, 1):
        run("prune", vit, "--method", "random", "--budget", 2, "--seed", seed, "-o", f"p{seed}")
    run("fuse", "p0", "p1", "-o", "hydra")
    train = ("finetune", "hydra", "--train-data", images, *FAST)
    assert "hydra: has 2 members: train each with --apart, or all with --joint" in run(*train, "-o", "x").err
    assert run(*train, "--apart", "-o", "apart/").out == (
        "apart/hydra-member0.safetensors\napart/hydra-member1.safetensors\n"
    )
    run("finetune", "p1", "--train-data", images, *FAST, "--seed", 1, "-o", "alone")
    apart = read_checkpoint("apart/hydra-member1.safetensors")
    assert identity(apart) == identity(read_checkpoint("alone"))
    assert run(*train, "--joint", "-o", "joint").code == 0
    joint = read_checkpoint("joint")
    assert joint.members == 2 and joint.shared == read_checkpoint("hydra").shared
    assert identity(joint) != identity(read_checkpoint("hydra"))


def test_baselines_are_files_like_any_other(run: Command, vit: Path, images: Path, here: Path) -> None:
    train = ("finetune", vit, "--train-data", images, *FAST)
    lora = run(*train, "--method", "lora-ensemble", "--members", 3, "--rank", 2, "-o", "lora")
    assert (lora.code, lora.out) == (0, "lora\n")
    assert run(*train, "--method", "batch-ensemble", "--members", 3, "-o", "batch").code == 0
    assert read_checkpoint("lora").members == read_checkpoint("batch").members == 3
    assert read_checkpoint("lora").provenance["options"]["method"]["rank"] == 2
    assert run(*train, "--method", "mask-ensemble", "--members", 3, "--mask-scale", 2, "-o", "mask").code == 0
    assert "per member  adapter, classifier" in run("inspect", "lora").out
    table = run("evaluate", "lora", "mask:1,2", "--members-curve", "--id-data", images, "--allow-leak", "--json", "-")
    models = json.loads(table.out)["models"]
    assert list(models) == ["lora:0", "lora:0,1", "lora", "mask:1,2"], table.err
    assert [model["cost"]["members"] for model in models.values()] == [1, 2, 3, 2]
    assert models["lora:0"]["cost"]["parameters"] < models["lora:0,1"]["cost"]["parameters"]
    assert run("fuse", "lora", vit, "-o", "four", "--quiet").code == 0
    assert read_checkpoint("four").members == 4
