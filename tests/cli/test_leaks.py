import json
from pathlib import Path

import pytest

import hydractl as library
from hydractl.data import hashes
from hydractl.data.samples import Samples
from hydractl.families.load import read_checkpoint
from hydractl.training.trainset import REMEMBERED, remembered_training
from tests.cli.conftest import Command, save_images

pytestmark = pytest.mark.usefixtures("place")
TUNING = {"settings": {"optimizer": "sgd", "lr": 0.05, "batch": 4}, "steps": 1, "device": "cpu"}


def member(id_data: str, output: str) -> None:
    """Makes a member chosen on this data and on `noise`."""
    found = library.extract_circuit("vit", id_data=id_data, ood_data="noise", budget=2)
    library.prune("vit", method="circuit", circuit=found, budget=2, output=output)


def test_an_allowed_leak_is_said_wherever_its_numbers_stand(hydractl: Command) -> None:
    member("pets", "m1")
    sets = ["--id-data=pets", "--ood-data=far/noise=noise"]
    used = [
        "ID data pets: 12 of 12 samples were used to make m1 (as id)",
        "OOD data noise: 5 of 5 samples were used to make m1 (as ood)",
    ]
    refused = hydractl("evaluate", "vit", "m1", *sets, code=1)
    assert all(line in refused.err for line in used)
    outputs = ["--json=r.json", "--report=page", "--save-logits=saved"]
    allowed = hydractl("evaluate", "dense=vit", "m1", *sets, "--allow-leak", "--quiet", *outputs, code=0)
    assert allowed.err.splitlines() == [f"warning: {line}: the numbers flatter it" for line in used]
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


def test_of_a_large_training_set_some_samples_are_remembered() -> None:
    large = Samples("many", "text", [f"text {number}" for number in range(REMEMBERED + 50)])
    entry = remembered_training(large)
    assert (entry["samples"], entry["complete"]) == (REMEMBERED + 50, False)
    assert hashes.remembered_samples(entry, large.content_hashes(), "many").sum() == REMEMBERED


def test_a_hydra_remembers_what_each_step_of_each_member_used(hydractl: Command) -> None:
    names = {"first": "id", "second": "id", "held": "validation data", "told": "calibration data",
             "learnt": "training data"}  # fmt: skip
    for seed, folder in enumerate((*names, "fresh"), 1):
        save_images(Path(folder), seed=seed)
    member("first", "m0")
    member("second", "m1")
    library.finetune("m1", train_data="learnt", val_data="held", **TUNING, output="tuned")
    library.fuse(["m0", "tuned"], output="fused")
    library.calibrate("fused", id_data="told", output="hydra")
    for folder, name in names.items():
        refused = hydractl("evaluate", "hydra", f"--id-data=x={folder}")
        assert f"ID data x: 12 of 12 samples were used to make hydra (as {name})" in refused.err
    refused = hydractl("evaluate", "hydra", "--id-data=fresh", "--ood-data=x=noise")
    assert "OOD data x: 5 of 5 samples were used to make hydra (as ood)" in refused.err
    hydractl("evaluate", "hydra", "--id-data=fresh", code=0)
    provenance = read_checkpoint("hydra").provenance
    assert json.dumps(dict(provenance)).count(provenance["search_data"]["ood"]["hashes"]) == 1
    assert provenance["search_data"]["id"]["samples"] == 24


def test_ood_data_that_are_id_are_warned_of(hydractl: Command, place: Path) -> None:
    (place / "both").mkdir()
    for number, folder in enumerate(("pets/cat", "noise")):
        for file in (place / folder).iterdir():
            (place / "both" / f"{number}{file.name}").write_bytes(file.read_bytes())
    said = hydractl("evaluate", "vit", "--id-data", "pets", "--ood-data", "both", "--bootstrap", 0, code=0)
    assert "4 of 9 samples are ID samples too" in said.err
    assert not hydractl("evaluate", "vit", "--id-data", "pets", "--ood-data", "noise", "--bootstrap", 0, code=0).err


@pytest.mark.parametrize(("seed", "is_told"), [(1, True), (None, False)])
def test_an_auroc_of_chance_is_warned_of(
    hydractl: Command, place: Path, seed: int | None, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hydractl.evaluation.comparison.CHANCE", 0.1)
    save_images(place / "id", 40)
    if seed is not None:
        save_images(place / "ood", 40, seed=seed)
    else:
        (place / "ood").mkdir()
        source = next((place / "noise").iterdir()).read_bytes()
        for number in range(120):
            (place / "ood" / f"{number}.png").write_bytes(source)
    said = hydractl("evaluate", "vit", "--id-data", "id", "--ood-data", "ood", "--bootstrap", 0, code=0)
    assert ("AUROC is about 50 %" in said.err) == is_told, said.out
