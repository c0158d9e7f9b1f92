"""A slice of data that lie in order of class: every step that reads labels says what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command, save_circuit, save_images

STEPS = {
    "score-heads": "vit --id-data eight:train[:8] --method taylor -o s.json",
    "extract-circuit": "vit --id-data eight:train[:8] --objective acc --budget 1 -o c.json",
    "select": "vit --random 2 --draws 1 --members 2 --budgets 1 --id-data eight:train[:8] --ood-data noise",
    "prune": "vit --method taylor --budget 1 --id-data eight:train[:8] -o p",
    "finetune": "vit --train-data eight --val-data eight:train[:8] --steps 1 --set lr=1e-3 -o t",
    "calibrate": "vit --id-data eight:train[:8] -o c",
    "evaluate": "vit --id-data eight:train[:8] --ood-data n=noise",
    "analyse heads": "vit --circuit circuit.json --id-data eight:train[:8] --ood-data noise",
    "analyse budgets": "vit --circuit circuit.json --budgets 1 --id-data eight:train[:8] --ood-data noise",
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_says_which_classes_a_slice_lacks(step: str, run: Command, vit: Path, noise: Path, here: Path) -> None:
    save_images(here / "eight", 8)
    for name, target in (("vit", vit), ("noise", noise)):
        (here / name).symlink_to(target)
    save_circuit("circuit.json", (0, 0), (1, 0))
    result = run(*step.split(), *STEPS[step].split())
    assert result.code == 0, result.err
    note = "note: eight:train[:8]: the 8 samples taken hold 1 of 3 classes"
    assert result.err.count(note) == 1
    if step == "score-heads":
        everything = run(*step.split(), *STEPS[step].replace("[:8]", "[4:20]").split(), "--force")
        assert (everything.code, everything.err) == (0, "")
