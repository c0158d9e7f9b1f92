"""A slice of data that lie in order of class: every step that reads labels says what it lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command, save_images

STEPS = {
    "score-heads": "score-heads {vit} --id-data {sliced} --method taylor -o s.json",
    "extract-circuit": "extract-circuit {vit} --id-data {sliced} --objective acc --budget 1 -o c.json",
    "select": "select {vit} --random 2 --draws 1 --members 2 --budgets 1 --id-data {sliced} --ood-data {noise}",
    "prune": "prune {vit} --method taylor --budget 1 --id-data {sliced} -o p",
    "finetune": "finetune {vit} --train-data {images} --val-data {sliced} --steps 1 --set lr=1e-3 -o t",
    "calibrate": "calibrate {vit} --id-data {sliced} -o c",
    "evaluate": "evaluate {vit} --id-data {sliced} --ood-data n={noise}",
    "analyse heads": "analyse heads {vit} --circuit {circuit} --id-data {sliced} --ood-data {noise}",
    "analyse budgets": "analyse budgets {vit} --circuit {circuit} --budgets 1 --id-data {sliced} --ood-data {noise}",
}


@pytest.fixture(scope="module")
def eight_of_each(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_images(tmp_path_factory.mktemp("data") / "eight", 8)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_says_which_classes_a_slice_lacks(
    step: str,
    run: Command,
    vit: Path,
    eight_of_each: Path,
    noise: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "{circuit}" in STEPS[step]:
        search = ("--objective", "acc", "--budget", 1, "-o", "circuit.json")
        run("extract-circuit", vit, "--id-data", eight_of_each, *search)
    sliced = f"{eight_of_each}:train[:8]"
    line = STEPS[step].format(vit=vit, sliced=sliced, images=eight_of_each, noise=noise, circuit="circuit.json")
    leak = ["--allow-leak"] if "budgets" in step else []
    result = run(*line.split(), *leak)
    assert result.code == 0, result.err
    note = f"note: {sliced}: the 8 samples taken hold 1 of 3 classes: where data lie in order of class, take a part"
    assert result.err.count(note) == 1


def test_no_note_where_every_class_is_there(
    run: Command, vit: Path, eight_of_each: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("score-heads", vit, "--id-data", f"{eight_of_each}:train[4:20]", "--method", "taylor", "--json", "-")
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out)
