"""What chose, fitted or validated a model is refused in an evaluation, or marks the report where that is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hydractl.data import hashes
from hydractl.data.samples import Samples
from hydractl.families.load import read_checkpoint
from hydractl.training.trainset import REMEMBERED, remembered
from tests.cli.conftest import Command, save_images

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def leaking(hydractl: Command, vit: Path, images: Path, noise: Path) -> str:
    """A member chosen on `images` and `noise`."""
    assert hydractl("extract-circuit", vit, f"--id-data={images}", f"--ood-data={noise}", "--budget=2").code == 0
    assert hydractl("prune", "--method=circuit", "--budget=2", "-o", "m1").code == 0
    return "m1"


def test_an_allowed_leak_is_said_wherever_its_numbers_stand(
    hydractl: Command, leaking: str, vit: Path, images: Path, noise: Path
) -> None:
    sets = [f"--id-data=pets={images}", f"--ood-data=far/noise={noise}"]
    refused = hydractl("evaluate", vit, leaking, *sets)
    assert refused.code == 1
    assert "ID data pets: 12 of 12 samples were used to make m1 (as id)" in refused.err
    assert "OOD data noise: 5 of 5 samples were used to make m1 (as ood)" in refused.err
    outputs = ["--json=r.json", "--report=page", "--save-logits=saved"]
    allowed = hydractl("evaluate", f"dense={vit}", leaking, *sets, "--allow-leak", "--quiet", *outputs, code=0)
    assert allowed.err.splitlines() == [
        "warning: ID data pets: 12 of 12 samples were used to make m1 (as id): the numbers flatter it",
        "warning: OOD data noise: 5 of 5 samples were used to make m1 (as ood): the numbers flatter it",
    ]
    models = json.loads(Path("r.json").read_text())["models"]
    assert "leaks" not in models["dense"]
    assert models["m1"]["leaks"] == [
        {"set": "id", "name": "pets", "samples": 12, "overlap": 12, "used_as": ["id"]},
        {"set": "ood/far/noise", "name": "noise", "samples": 5, "overlap": 5, "used_as": ["ood"]},
    ]
    line = "† 12 of 12 samples of pets (id) were used to make or fit m1 (as id): flattered."
    texts = [allowed.out, Path("page/table.md").read_text(), Path("page/index.html").read_text()]
    # Predictions saved from it stay what they are.
    texts.append(hydractl("evaluate", "m1=predictions:saved/m1").out)
    for text in texts:
        assert line in text and "m1 †" in text and "dense †" not in text
    table = Path("page/table.tex").read_text()
    assert r"m1 $\dagger$ &" in table and line in table


def test_of_a_large_training_set_some_samples_are_remembered() -> None:
    large = Samples("many", "text", [f"text {number}" for number in range(REMEMBERED + 50)])
    entry = remembered(large)
    assert (entry["samples"], entry["complete"]) == (REMEMBERED + 50, False)
    assert hashes.remembered(entry, large.content_hashes(), "many").sum() == REMEMBERED


def test_a_hydra_remembers_what_each_step_of_each_member_used(
    hydractl: Command, vit: Path, noise: Path, here: Path
) -> None:
    used = [save_images(here / f"used{number}", seed=1 + number) for number in range(4)]
    for number in (0, 1):
        search = ["extract-circuit", vit, f"--id-data={used[number]}", f"--ood-data={noise}", "--budget=2"]
        assert hydractl(*search, "-o", f"c{number}.json").code == 0
        assert (
            hydractl("prune", "--method=circuit", f"--circuit=c{number}.json", "--budget=2", "-o", f"m{number}").code
            == 0
        )
    trained = save_images(here / "trained", seed=9)
    tuning = ["--set=optimizer=sgd", "--set=lr=0.05", "--set=batch=4", "--steps=1", "--device=cpu"]
    data = [f"--train-data={trained}", f"--val-data={used[2]}"]
    assert hydractl("finetune", "m1", *data, *tuning, "-o", "tuned").code == 0
    assert hydractl("fuse", "m0", "tuned", "-o", "fused").code == 0
    assert hydractl("calibrate", "fused", f"--id-data={used[3]}", "-o", "hydra").code == 0
    names = ("id", "id", "validation data", "calibration data", "training data")
    for folder, name in zip([*used, trained], names, strict=True):
        refused = hydractl("evaluate", "hydra", f"--id-data=x={folder}")
        assert f"ID data x: 12 of 12 samples were used to make hydra (as {name})" in refused.err
    fresh = save_images(here / "fresh", seed=20)
    refused = hydractl("evaluate", "hydra", f"--id-data={fresh}", f"--ood-data=x={noise}")
    assert "OOD data x: 5 of 5 samples were used to make hydra (as ood)" in refused.err
    assert hydractl("evaluate", "hydra", f"--id-data={fresh}").code == 0
    provenance = read_checkpoint("hydra").provenance
    assert json.dumps(dict(provenance)).count(provenance["search_data"]["ood"]["hashes"]) == 1
    assert provenance["search_data"]["id"]["samples"] == 24
