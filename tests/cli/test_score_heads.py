"""`hydractl score-heads` and `prune --method taylor`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hydractl.families.load import read_checkpoint
from tests.cli.conftest import Command


@pytest.mark.parametrize("method", ["taylor", "gate", "separation", "ablation"])
def test_scores_are_written_drawn_and_pruned_by(
    hydractl: Command, here: Path, vit: Path, images: Path, noise: Path, method: str
) -> None:
    ood = [f"--ood-data={noise}"] if method in ("separation", "ablation") else []
    result = hydractl("score-heads", vit, f"--id-data={images}", f"--method={method}", *ood, "--plot=heads.png")
    assert result.code == 0, result.err
    first = "vision mahalanobis" if method == "separation" else "vision"
    assert result.out.startswith(f"{first}   head   0   1   2   3\n")
    assert result.out.endswith("scores.json\n")
    assert (here / "heads.png").read_bytes().startswith(b"\x89PNG")
    scores = json.loads((here / "scores.json").read_text())
    assert [len(row) for row in scores["towers"]["vision"]] == [4, 4]
    pruned = hydractl("prune", "--method=scores", "--budget=3", "-o", "m1")
    assert pruned.code == 0
    leak = hydractl("evaluate", "m1", "--id-data", images)
    assert "12 of 12 samples were used to make m1" in leak.err


def test_separation_tells_both_distances_and_draws_what_heads_say(
    hydractl: Command, here: Path, vit: Path, images: Path, noise: Path
) -> None:
    arguments = ["score-heads", vit, f"--id-data={images}", f"--ood-data={noise}", "--method=separation"]
    result = hydractl(*arguments, "--plot=heads.svg")
    assert result.code == 0, result.err
    scores = json.loads((here / "scores.json").read_text())
    distances = {name: towers["vision"] for name, towers in scores["distances"].items()}
    assert distances.keys() == {"euclidean", "mahalanobis", "mean"}
    assert scores["towers"]["vision"] == distances["mahalanobis"]
    for layer, row in enumerate(distances["mean"]):
        for head, mean in enumerate(row):
            assert mean == (distances["euclidean"][layer][head] + distances["mahalanobis"][layer][head]) / 2
    picture = (here / "heads.svg").read_text()
    panels = ("vision euclidean", "vision mahalanobis", "vision mean")
    for name in panels:
        assert f"{name}   head   0" in result.out and f">{name}</text>" in picture
    assert ">ID</text>" in picture and ">OOD</text>" in picture


@pytest.mark.parametrize(("method", "world"), [("taylor", 2), ("separation", 3)])
def test_any_number_of_processes_writes_the_same_bytes(
    here: Path, vit: Path, images: Path, noise: Path, method: str, world: int
) -> None:
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}", "-m", "hydractl"]
    arguments = ["score-heads", str(vit), f"--id-data={images}", f"--method={method}", "--batch-size=2", "--quiet"]
    arguments += [f"--ood-data={noise}"] if method == "separation" else []
    alone = subprocess.run(
        [sys.executable, "-m", "hydractl", *arguments, "-o", "1.json", "--plot=1.png"], capture_output=True
    )
    many = subprocess.run([*run, *arguments, "-o", "2.json", "--plot=2.png"], capture_output=True, timeout=300)
    assert (alone.returncode, many.returncode) == (0, 0), many.stderr
    assert (here / "1.json").read_bytes() == (here / "2.json").read_bytes()
    assert (here / "1.png").read_bytes() == (here / "2.png").read_bytes()


def test_prune_by_taylor_goes_layer_by_layer(hydractl: Command, here: Path, vit: Path, images: Path) -> None:
    arguments = ("prune", vit, "--method=taylor", "--budget=3", f"--id-data={images}", "--samples=6")
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
    assert (refused.code, "needs --id-data" in refused.err) == (2, True)


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_prune_by_taylor_at_once_is_pruning_by_the_scores_of_the_whole_model(
    hydractl: Command, here: Path, vit: Path, images: Path, scope: str
) -> None:
    options = [f"--id-data={images}", "--batch-size=5", "--json"]
    at_once = hydractl("prune", vit, "--method=taylor-oneshot", "--budget=3", f"--scope={scope}", *options)
    assert at_once.code == 0, at_once.err
    assert ("do not divide over the layers" in at_once.err) == (scope == "layer")
    assert "loses accuracy and OOD detection" in at_once.err
    written = json.loads(at_once.out)
    assert written["output"] == f"vit-taylor-oneshot-{scope}-3.safetensors"
    assert hydractl("score-heads", vit, "--method=taylor", f"--id-data={images}", "--batch-size=5").code == 0
    scored = hydractl("prune", "--method=scores", "--budget=3", f"--scope={scope}", "--json")
    assert written["dropped"] == json.loads(scored.out)["dropped"]
    assert "12 of 12 samples were used" in hydractl("evaluate", written["output"], "--id-data", images).err
    assert read_checkpoint(written["output"]).provenance["options"]["method"] == "taylor-oneshot"
