"""`hydractl score-heads` and `prune --method taylor`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hydractl.families.open import read_checkpoint
from tests.cli.conftest import Command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("method", ["taylor", "gate", "magnitude", "separation", "ablation"])
def test_scores_are_written_drawn_and_pruned_by(
    hydractl: Command, here: Path, vit: Path, images: Path, noise: Path, method: str
) -> None:
    ood = [f"--ood-data={noise}"] if method in ("separation", "ablation") else []
    result = hydractl("score-heads", vit, f"--data={images}", f"--method={method}", *ood, "--plot=heads.png")
    assert result.code == 0, result.err
    assert result.out.startswith("vision   head   0   1   2   3\n")
    assert result.out.endswith("scores.json\n")
    assert (here / "heads.png").stat().st_size > 1000
    scores = json.loads((here / "scores.json").read_text())
    assert [len(row) for row in scores["towers"]["vision"]] == [4, 4]
    if method == "separation":
        assert scores["distances"].keys() == {"euclidean", "mahalanobis"}
    pruned = hydractl("prune", "--method=scores", "--budget=3", "-o", "m1")
    assert pruned.code == 0
    leak = hydractl("evaluate", "m1", "--id-data", images)
    assert "12 of 12 samples were used to make m1" in leak.err


def test_two_processes_write_the_same_scores(here: Path, vit: Path, images: Path, noise: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "hydractl"]
    arguments = ["score-heads", str(vit), f"--data={images}", "--method=taylor", "--batch-size=2", "--quiet"]
    alone = subprocess.run([sys.executable, "-m", "hydractl", *arguments, "-o", "1.json"], capture_output=True)
    both = subprocess.run([*torchrun, *arguments, "-o", "2.json"], capture_output=True, timeout=300)
    assert (alone.returncode, both.returncode) == (0, 0), both.stderr
    assert (here / "1.json").read_bytes() == (here / "2.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method=separation"], "--method separation needs --ood-data"),
        (["--method=taylor", "--ood-data=x"], "--method taylor takes no --ood-data"),
        (["--method=taylor", "--normalize"], "--normalize has no effect with --method taylor"),
    ],
)
def test_wrong_options(
    hydractl: Command, here: Path, vit: Path, images: Path, arguments: Sequence[str], message: str
) -> None:
    result = hydractl("score-heads", vit, f"--data={images}", *arguments)
    assert (result.code, result.err) == (2, f"error: {message}" + result.err.removeprefix(f"error: {message}"))


def test_prune_by_taylor_goes_layer_by_layer(hydractl: Command, here: Path, vit: Path, images: Path) -> None:
    arguments = ("prune", vit, "--method=taylor", "--budget=3", f"--data={images}", "--samples=6")
    result = hydractl(*arguments, "-o", "m1")
    assert result.code == 0, result.err
    assert "3 heads do not divide over the layers: 1 to 2 each" in result.err
    assert "loses accuracy and OOD detection" in result.err
    checkpoint = read_checkpoint("m1")
    assert [len(layer[0]) for layer in checkpoint.heads["vision"]] == [2, 3]
    assert checkpoint.provenance["search_data"]["calibration"]["samples"] == 6
    assert "6 of 12 samples were used" in hydractl("evaluate", "m1", "--id-data", images).err
    assert hydractl(*arguments, "-o", "m2").code == 0
    assert (here / "m1").read_bytes() == (here / "m2").read_bytes()
    refused = hydractl("prune", vit, "--method=taylor", "--budget=3")
    assert (refused.code, "needs --data" in refused.err) == (2, True)
