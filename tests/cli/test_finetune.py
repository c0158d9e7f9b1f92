"""`hydractl finetune`: files, names, messages; killed and resumed; two processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import ViTModel

from hydractl.checkpoint.contents import identity
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import Command
from tests.references import make_timm, save_timm

FAST = ("--set", "optimizer=sgd", "--set", "lr=0.05", "--set", "batch=4", "--steps", "3", "--device", "cpu")


def test_one_model_becomes_one_file_with_its_log_and_curve_beside_it(
    hydractl: Command, vit: Path, images: Path, here: Path
) -> None:
    result = hydractl("finetune", vit, "--train-data", images, "--val-split", 3, *FAST, "-o", "m1")
    assert (result.code, result.out) == (0, "m1\n")
    assert {path.name for path in here.iterdir()} == {"m1", "m1.training"}
    assert {path.name for path in (here / "m1.training").iterdir()} == {".hydractl.json", "log.jsonl", "curve.png"}
    lines = [json.loads(line) for line in (here / "m1.training" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 2, 3, 3]
    provenance = read_checkpoint("m1").provenance
    assert provenance["command"] == "finetune"
    assert provenance["options"]["recipe"]["lr"] == 0.05
    assert {name: one["samples"] for name, one in provenance["search_data"].items()} == {
        "training data": 9,
        "validation data": 3,
    }
    # What the weights were fitted to or chosen by is refused in an evaluation.
    refused = hydractl("evaluate", "m1", "--id-data", images)
    assert refused.code == 1
    assert "12 of 12 samples were used to make m1 (as training data, validation data)" in refused.err


def long_run(vit: Path, images: Path, output: str) -> list[str]:
    options = "--set optimizer=adamw --set lr=0.01 --set batch=4 --set flip=true --set dropout=0.1"
    options += " --set validate_every=7 --steps 60"
    return [sys.executable, "-m", "hydractl", "finetune", str(vit), "--train-data", str(images), "--val-split", "3",
            *options.split(), "--save-every", "3", "--device", "cpu", "-o", output]  # fmt: skip


@pytest.mark.slow
def test_killed_and_resumed_gives_the_bits_of_an_uninterrupted_run(vit: Path, images: Path, here: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(long_run(vit, images, "whole"), check=True, env=environment, capture_output=True)
    process = subprocess.Popen(long_run(vit, images, "killed"), env=environment, stderr=subprocess.PIPE)
    folder = here / "killed.training"
    deadline = time.monotonic() + 120
    while len(list(folder.glob("state-*.pt")) if folder.is_dir() else []) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (here / "killed").exists()
    subprocess.run([*long_run(vit, images, "killed"), "--resume"], check=True, env=environment, capture_output=True)
    assert (here / "killed").read_bytes() == (here / "whole").read_bytes()


@pytest.mark.slow
def test_two_processes_equal_one_with_twice_the_batch(vit: Path, images: Path, here: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    options = "--set optimizer=sgd --set lr=0.05 --set batch=8 --set flip=true --steps 6 --device cpu"
    train = ["-m", "hydractl", "finetune", str(vit), "--train-data", str(images), "--val-split", "3", *options.split()]
    one = [sys.executable, *train, "--batch-size", "8", "-o", "one"]
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
           *train, "--batch-size", "4", "-o", "two"]  # fmt: skip
    subprocess.run(one, check=True, env=environment, capture_output=True)
    done = subprocess.run(two, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "two\n"
    for (name, a), b in zip(
        read_checkpoint("one").tensors.items(), read_checkpoint("two").tensors.values(), strict=True
    ):
        torch.testing.assert_close(a.load(), b.load(), rtol=0, atol=1e-5, msg=name)
    assert identity(read_checkpoint("one")) != identity(read_checkpoint(vit))


def save_base(library: str, folder: Path, vit: Path) -> Path:
    if library == "timm":
        save_timm(make_timm("vit_tiny_patch16_224", img_size=8, patch_size=4, depth=2, num_classes=0), folder)
        return folder
    ViTModel.from_pretrained(vit).save_pretrained(folder)
    shutil.copy(vit / "preprocessor_config.json", folder)
    return folder


@pytest.mark.parametrize("library", ["transformers", "timm"])
def test_a_base_network_gets_the_data_s_classifier(
    library: str, hydractl: Command, vit: Path, images: Path, here: Path
) -> None:
    train = ("finetune", save_base(library, here / "base", vit), "--train-data", images, *FAST, "-o", "m1")
    refused = hydractl(*train)
    assert refused.code == 1 and "with --new-classifier" in refused.err
    assert hydractl(*train, "--new-classifier", "zeros").code == 0
    trained = read_checkpoint("m1")
    assert trained.labels == ("cat", "dog", "owl") and trained.tensors["classifier.weight"].load().any()
    report = hydractl("evaluate", "m1", "--id-data", images, "--allow-leak", "--device", "cpu")
    assert report.code == 0, report.err


def test_a_hydra_trains_member_by_member_or_jointly(hydractl: Command, vit: Path, images: Path, here: Path) -> None:
    for seed in (0, 1):
        hydractl("prune", vit, "--method", "random", "--budget", 2, "--seed", seed, "-o", f"p{seed}")
    hydractl("fuse", "p0", "p1", "-o", "hydra")
    train = ("finetune", "hydra", "--train-data", images, *FAST)
    assert "hydra: has 2 members: train each with --apart, or all with --joint" in hydractl(*train, "-o", "x").err
    assert hydractl(*train, "--apart", "-o", "apart/").out == (
        "apart/hydra-member0.safetensors\napart/hydra-member1.safetensors\n"
    )
    hydractl("finetune", "p1", "--train-data", images, *FAST, "--seed", 1, "-o", "alone")
    apart = read_checkpoint("apart/hydra-member1.safetensors")
    assert identity(apart) == identity(read_checkpoint("alone"))
    assert hydractl(*train, "--joint", "-o", "joint").code == 0
    joint = read_checkpoint("joint")
    assert joint.members == 2 and joint.shared == read_checkpoint("hydra").shared
    assert identity(joint) != identity(read_checkpoint("hydra"))


def test_baselines_are_files_like_any_other(hydractl: Command, vit: Path, images: Path, here: Path) -> None:
    train = ("finetune", vit, "--train-data", images, *FAST)
    lora = hydractl(*train, "--method", "lora-ensemble", "--members", 3, "--rank", 2, "-o", "lora")
    assert (lora.code, lora.out) == (0, "lora\n")
    assert hydractl(*train, "--method", "batch-ensemble", "--members", 3, "-o", "batch").code == 0
    assert read_checkpoint("lora").members == read_checkpoint("batch").members == 3
    assert read_checkpoint("lora").provenance["options"]["method"]["rank"] == 2
    assert hydractl(*train, "--method", "mask-ensemble", "--members", 3, "--mask-scale", 2, "-o", "mask").code == 0
    assert "per member  adapter, classifier" in hydractl("inspect", "lora").out
    table = hydractl(
        "evaluate", "lora", "mask:1,2", "--members-curve", "--id-data", images, "--allow-leak", "--json", "-"
    )
    models = json.loads(table.out)["models"]
    assert list(models) == ["lora:0", "lora:0,1", "lora", "mask:1,2"], table.err
    assert [model["cost"]["members"] for model in models.values()] == [1, 2, 3, 2]
    assert models["lora:0"]["cost"]["parameters"] < models["lora:0,1"]["cost"]["parameters"]
    assert hydractl("fuse", "lora", vit, "-o", "four", "--quiet").code == 0
    assert read_checkpoint("four").members == 4
