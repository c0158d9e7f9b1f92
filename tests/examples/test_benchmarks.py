"""The benchmarks run, and find that both ways of each do the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import save_bert

BENCHMARKS = Path(__file__).parents[2] / "examples" / "benchmarks"


@pytest.mark.slow
def test_whole_searches_are_timed(vit: Path, images: Path, noise: Path) -> None:
    command = [sys.executable, BENCHMARKS / "whole_search.py", vit, images, noise, "--objective=acc", "--budget=2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("acc, 2 of 8 heads, 12 + ")
    assert re.fullmatch(r"naive +[\d.]+ s: 15 candidates of [\d.]+, [\d.]+, [\d.]+ s", lines[1])
    assert re.search(r"then [1-7] of 7 scored exactly$", lines[-2])
    assert lines[-1].startswith("exact and screened choices ")


@pytest.mark.slow
def test_candidates_are_timed_together_and_apart(vit: Path, tmp_path: Path) -> None:
    steps = [{"tower": "vision", "layer": layer, "head": head} for layer in (1, 0) for head in range(4)]
    circuit = tmp_path / "c.json"
    circuit.write_text(json.dumps({"format": "hydractl-circuit", "version": 1, "steps": steps}))
    command = [sys.executable, BENCHMARKS / "candidates.py", vit, circuit, "--candidates=4", "--share=50%", "--batch=2"]
    done = subprocess.run([*command, "--repeats=1"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, layers, times, logits = done.stdout.splitlines()
    assert first == "4 candidates without up to 4 of 8 heads, batch 2"
    # All heads that leave are of the last layer: the first is computed once, the last four times.
    assert layers == "layers computed: 0.62 of those of each alone"
    assert re.match(r"time: [\d.]+ of that of each alone, [\d.]+ where each is optimised", times)
    assert float(logits.rpartition(" ")[2]) < 1e-5


@pytest.mark.slow
def test_training_is_timed_beside_transformers(tmp_path: Path) -> None:
    bert = save_bert(tmp_path / "bert")
    lines = [
        f"{word * length},{label}" for label, word in enumerate(("cat ", "dog ", "owl ")) for length in range(1, 9)
    ]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *lines]))
    command = [sys.executable, BENCHMARKS / "finetune_speed.py", bert, tmp_path / "texts.csv", "--steps=4", "--batch=4"]
    done = subprocess.run([*command, "--repeats=1"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second, ratio = done.stdout.splitlines()[-3:]
    found = [re.fullmatch(rf"{name}: [\d.]+ samples a second, mean loss ([\d.]+)", line) for name, line in
             (("hydractl", first), ("Trainer", second))]  # fmt: skip
    assert all(each and 0.5 < float(each[1]) < 2 for each in found), done.stdout
    assert re.fullmatch(r"ratio: [\d.]+", ratio)
