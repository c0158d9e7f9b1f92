"""Selecting members: Python and the command line choose alike, and nothing of it leaks into an evaluation."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import hydractl
from hydractl.checkpoint.calibration import Calibration
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.selection.selection_run import Store
from tests.cli.conftest import Command, interrupt_at, save_circuit


@pytest.fixture(autouse=True)
def _circuits(place: Path) -> None:
    save_circuit("a.json", (1, 0), (1, 2), (0, 0), (0, 2))
    save_circuit("b.json", (1, 3), (1, 1), (0, 3), (0, 1))


OPTIONS = ["--circuit=a.json", "--circuit=b.json", "--budgets=1,2", "--pools=4", "--draws=2", "--members=2"]


def written() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path("s.json").read_text())
    return content


def test_an_interrupted_selection_goes_on_to_the_same(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("--id-data=pets", "--batch-size=4")
    arguments = ("select", "vit", *OPTIONS, *asked, "-o", "s", "--hydra")
    run(*arguments, "whole", "--quiet")
    whole, model = Path("s").read_bytes(), Path("whole").read_bytes()
    Path("s").unlink()
    interrupt_at(monkeypatch, Store, "write", 2)
    assert run(*arguments, "hydra").code == 130
    assert "continue with --resume" in run(*arguments, "hydra").err
    assert "another" in run(*arguments, "hydra", "--resume", "--budgets=1").err
    assert run(*arguments, "hydra", "--resume", "--quiet").code == 0
    assert (Path("s").read_bytes(), Path("hydra").read_bytes()) == (whole, model)


def test_members_share_a_trunk_where_that_is_asked_for(run: Command) -> None:
    arguments = ("--trunks=1", "--circuit=a.json", "--budgets=3", "--random=3", "--members=2", "--without-dense")
    run("select", "vit", *arguments, "--id-data=pets", "--hydra", "hydra", "-o", "s.json", code=0)
    assert read_checkpoint("hydra").heads["vision"][0] == ((0, 1, 2, 3),) * 2
    assert written()["trunk"] == 1


def test_shares_are_of_the_heads_above_a_trunk() -> None:
    for trunks, lacking in (("", {4}), ("1", {2})):
        asked = {"random": 6, "members": "2", "budgets": "50%", "trunks": trunks}
        found = hydractl.select("vit", id_data="pets", without_dense=True, **asked).content
        assert {len(member["dropped"]) for member in found["members"]} == lacking
        assert all(head["layer"] == 1 for member in found["members"] for head in member["dropped"] if trunks)


def test_trained_files_and_a_temperature_are_written_as_they_were_measured(run: Command) -> None:
    warm = replace(read_checkpoint("vit"), calibration=Calibration(2.5))
    write_checkpoint(warm, Path("warm"), force=False)
    for seed in (0, 1):
        settings = {"lr": 1e-2, "steps": 3, "batch": 4, "warmup": 0}
        hydractl.finetune(["vit"], train_data="pets", settings=settings, seed=seed, output=f"m{seed}")
    run("select", "warm", "m0", "m1", "--id-data=pets", "--members=3", "--hydra=hydra", "--output=s.json", code=0)
    assert {member["candidate"] for member in written()["members"]} == {"dense", "m0", "m1"}
    model, last = hydractl.load("hydra"), written()["curve"][-1]
    files = sorted(Path("pets").rglob("*.png"))
    right = [list(model.labels or ()).index(file.parent.name) for file in files]
    p = model.predict([Image.open(file) for file in files]).mean_p
    assert -np.log(p[np.arange(len(p)), right]).mean() == pytest.approx(last["nll"], abs=1e-5)
    assert model.temperature == 2.5 and last["multiply_adds"] == 3 * written()["curve"][0]["multiply_adds"]
