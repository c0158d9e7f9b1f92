"""Selecting members: Python and the command line choose alike, and nothing of it leaks into an evaluation."""

import json
from pathlib import Path
from typing import Any

import pytest

import hydractl
from hydractl.families.load import read_checkpoint
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


def test_files_are_candidates(run: Command) -> None:
    for seed in (0, 1):
        hydractl.prune("vit", method="random", budget=2, seed=seed, output=f"m{seed}")
    asked = ("--id-data=pets", "--objective=nll", "--members=3")
    run("select", "vit", "m0", "m1", *asked, "--hydra=hydra", "--output=s.json")
    assert {member["candidate"] for member in written()["members"]} == {"dense", "m0", "m1"}
