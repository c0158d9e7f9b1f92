"""`hydractl analyse overlap`: a table, a map and a picture of the heads that circuits, scores and models drop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydractl import analyse_overlap
from tests.cli.conftest import Command, save_circuit, save_vit


def three(**changes: Any) -> list[str]:
    model = {"reference": "vit", "sha256": "a" * 64, "towers": {"vision": [2, 4]}}
    return [
        save_circuit("1.json", (0, 0), (1, 0), (1, 3), objective="acc", model=model),
        save_circuit("2.json", (0, 0), (0, 1), objective="ood", model=model),
        save_circuit("3.json", (0, 0), (1, 0), objective="avg", model=model),
    ]


def test_pairs_of_circuits_by_hand(here: Path) -> None:
    found = analyse_overlap(three(), budget=1, plot="heads.png")
    content = found.to_json()
    first = [{"tower": "vision", "layer": 0, "head": 0}]
    assert (content["budget"], content["log_base"], content["shared_by_all"]) == (1, 2, first)
    named = {"name": "ood", "file": "2.json", "kind": "circuit", "label": "ood"}
    assert content["choices"][1] == {**named, "dropped": first}
    assert content["pairs"][0] == {
        "choices": ["acc", "ood"],
        "shared": first,
        "by_chance": 0.125,
        "jensen_shannon_over_layers": 0.0,
        "jensen_shannon_over_heads": 0.0,
    }
    assert Path("heads.png").read_bytes().startswith(b"\x89PNG")
    # Of 8 heads two random pairs share 2 x 2 / 8. Circuits lose heads of layers 0 and 1, or twice of layer 0.
    shown = [line.split() for line in analyse_overlap(three()).lines()]
    assert ["acc", "ood", "1", "(50%)", "0.5", "0.3113", "0.5000"] in shown
    assert ["acc", "avg", "2", "(100%)", "0.5", "0.0000", "0.0000"] in shown
    assert ["layer", "1", "·■■■", "■■■■", "·■■■"] in shown


def test_circuits_scores_and_pruned_models_alike(run: Command, vit: Path, here: Path) -> None:
    assert run("score-heads", vit, "--method=magnitude", "-o", "s.json").code == 0
    for scope in ("global", "layer"):
        prune = ["prune", vit, "--method=scores", "--scores=s.json", "--budget=3", f"--scope={scope}"]
        assert run(*prune, "-o", f"{scope}.safetensors").code == 0
        found = analyse_overlap(["s.json", f"{scope}.safetensors"], scope=scope).to_json()
        assert [(one["name"], one["kind"]) for one in found["choices"]] == [("s", "scores"), (scope, "model")]
        assert (found["budget"], len(found["shared_by_all"])) == (3, 3)
    assert run("fuse", "global.safetensors", "layer.safetensors", "-o", "hydra").code == 0
    by_hand = save_circuit("c.json", (0, 0), (0, 1), (0, 2))
    result = run("analyse", "overlap", "hydra", by_hand, "--plot=pairs.svg")
    assert result.out.splitlines()[1].startswith("hydra member 0  hydra member 1")
    assert ">dropped by how many: vision<" in (here / "pairs.svg").read_text()
    other = save_vit(here / "other", seed=5)
    assert run("prune", other, "--method=random", "--budget=3", "-o", "o.safetensors").code == 0
    refused = run("analyse", "overlap", "s.json", "o.safetensors")
    assert (refused.code, "o.safetensors" in refused.err) == (1, True)
