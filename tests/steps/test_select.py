"""Selecting members: Python and the command line choose alike, and nothing of it leaks into an evaluation."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import hydractl
import hydractl as library
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.errors import HydractlError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.selection.joint import TurnsJournal
from tests.cli.conftest import Command, circuit, save_circuit


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_circuit("a.json", (1, 0), (1, 2), (0, 0), (0, 2))
    save_circuit("b.json", (1, 3), (1, 1), (0, 3), (0, 1))
    return tmp_path


OPTIONS = ["--circuit=a.json", "--circuit=b.json", "--budgets=1,2", "--pools=4", "--draws=2", "--members=2"]


def test_the_command_and_python_select_the_same(
    hydractl: Command, here: Path, vit: Path, images: Path, noise: Path
) -> None:
    data = ["--id-data", images, "--ood-data", f"far/noise={noise}"]
    result = hydractl("select", vit, *OPTIONS, *data, "--hydra", "hydra", "-o", "s.json", "--quiet")
    assert result.code == 0, result.err
    assert result.out.splitlines()[-2:] == ["s.json", "hydra"]
    found = library.select(
        vit, circuit=["a.json", "b.json"], budgets="1,2", pools="4", draws=2, members="2", id_data=images,
        ood_data={"far/noise": noise},
    )  # fmt: skip
    written = json.loads(Path("s.json").read_text())
    assert written == json.loads(json.dumps(found.to_json())) | {"model": written["model"]}
    assert len(written["members"]) == 2
    assert written["candidates"][0] == "dense"
    hydra = read_checkpoint("hydra")
    for number, member in enumerate(written["members"]):
        dropped = {Head(**head) for head in member["dropped"]}
        assert dropped == set(member_heads(read_checkpoint(vit).heads, 0)) - set(member_heads(hydra.heads, number))
    assert not list(here.glob("*.state"))
    refused = hydractl("evaluate", "hydra", "--id-data", images)
    assert refused.code == 1
    assert "selection" in refused.err


def test_an_interrupted_selection_goes_on_to_the_same(
    hydractl: Command, here: Path, vit: Path, images: Path, noise: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hydractl.selection.answers import Store

    data = ("--id-data", images, "--ood-data", noise, "--objective=ood", "--ood-score=mahalanobis")
    arguments = ("select", vit, *OPTIONS, *data, "--batch-size=4", "-o", "s")
    hydractl(*arguments, "--hydra", "whole", "--quiet")
    whole, model = Path("s").read_bytes(), Path("whole").read_bytes()
    Path("s").unlink()
    write = Store.write
    calls: list[int] = []

    def interrupted(self: Store, *rest: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        write(self, *rest)

    monkeypatch.setattr(Store, "write", interrupted)
    assert hydractl(*arguments, "--hydra", "hydra").code == 130
    monkeypatch.setattr(Store, "write", write)
    assert "go on with --resume" in hydractl(*arguments, "--hydra", "hydra").err
    assert "another" in hydractl(*arguments, "--hydra", "hydra", "--resume", "--budgets=1").err
    assert hydractl(*arguments, "--hydra", "hydra", "--resume", "--quiet").code == 0
    assert (Path("s").read_bytes(), Path("hydra").read_bytes()) == (whole, model)


def test_members_share_a_trunk_where_that_is_asked_for(
    hydractl: Command, here: Path, vit: Path, images: Path, noise: Path
) -> None:
    arguments = ("--trunks=1", "--circuit=a.json", "--budgets=3", "--random=3", "--members=2", "--without-dense")
    data = ("--id-data", images, "--ood-data", noise)
    for common, kept in (((), (0, 1, 2, 3)), (("--common-circuit=b.json",), (0, 1, 2))):
        result = hydractl("select", vit, *arguments, *common, *data, "--hydra", "hydra", "-o", "s.json", "--force")
        assert result.code == 0, result.err
        assert read_checkpoint("hydra").heads["vision"][0] == (kept, kept)
        assert json.loads(Path("s.json").read_text())["trunk"] == 1


def test_shares_are_of_the_heads_above_a_trunk(here: Path, vit: Path, images: Path) -> None:
    select = partial(library.select, vit, random=6, members="2", id_data=images, without_dense=True)
    for trunks, lacking in (("", {4}), ("1", {2})):
        found = select(budgets="50%", trunks=trunks).content
        assert {len(member["dropped"]) for member in found["members"]} == lacking
        assert all(head["layer"] == 1 for member in found["members"] for head in member["dropped"] if trunks)


def test_files_are_candidates_too(hydractl: Command, here: Path, vit: Path, images: Path) -> None:
    for seed in (0, 1):
        hydractl("prune", vit, "--method=random", "--budget=2", f"--seed={seed}", "-o", f"m{seed}")
    found = library.select(vit, ["m0", "m1"], members="3", objective="nll", id_data=images)
    assert {member["candidate"] for member in found.content["members"]} == {"dense", "m0", "m1"}
    assert library.load(found).members == 3


JOINT = ["--method=joint", "--members=2", "--budgets=1,2"]


def test_members_are_searched_for_together(hydractl: Command, here: Path, vit: Path, images: Path, noise: Path) -> None:
    data = ["--id-data", images, "--ood-data", noise]
    result = hydractl("select", vit, *JOINT, "--objective=avg", *data, "--hydra", "hydra", "-o", "s.json")
    assert result.code == 0, result.err
    assert [line.split()[1] for line in result.err.splitlines() if line.startswith("member ")] == ["1", "2", "1", "2"]
    found = library.select(
        vit, method="joint", members="2", budgets="1,2", objective="avg", id_data=images, ood_data=noise
    )
    written = json.loads(Path("s.json").read_text())
    assert written == json.loads(json.dumps(found.to_json())) | {"model": written["model"]}
    budget = len(written["members"][0]["dropped"])
    assert {member["candidate"] for member in written["members"]} == {f"joint {budget} member {n}" for n in (1, 2)}
    qualities = {}
    for number in (1, 2):  # the better of the two budgets is taken
        one = library.select(
            vit, method="joint", members="2", budgets=str(number), objective="avg", id_data=images, ood_data=noise
        )
        last = one.content["curve"][-1]
        qualities[number] = last["accuracy"] + last["auroc"]
    assert qualities[budget] == max(qualities.values()) > min(qualities.values())
    assert read_checkpoint("hydra").members == 2
    assert hydractl("evaluate", "hydra", "--id-data", images).code == 1


def test_a_joint_search_over_trunks(here: Path, vit: Path, images: Path) -> None:
    found = library.select(
        vit, method="joint", members="2", budgets="50%", trunks="1", id_data=images
    ).content  # fmt: skip
    assert found["trunk"] == 1
    for member in found["members"]:
        assert [head["layer"] for head in member["dropped"]] == [1, 1]
    both = library.select(vit, method="joint", members="2", budgets="1", trunks="0,1", id_data=images).content
    alone = library.select(vit, method="joint", members="2", budgets="1", id_data=images).content
    assert both["curve"][-1]["nll"] <= alone["curve"][-1]["nll"]


def test_a_joint_search_that_costs_too_much_is_not_made_again(
    here: Path, vit: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"method": "joint", "members": "2", "budgets": "2", "id_data": images}
    whole = library.select(vit, **asked).content
    with pytest.raises(OptionError, match="keep to the cost"):
        library.select(vit, **asked, output="s", budget_macs="1.01x")
    monkeypatch.setattr("hydractl.selection.joint.quality", None)  # no turn is left
    again = library.select(vit, **asked, output="s", budget_macs="2x", resume=True).content
    assert again["members"] == whole["members"]
    assert not list(here.glob("*state*"))


def test_an_interrupted_joint_search_goes_on_to_the_same(
    here: Path, vit: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    select = partial(library.select, vit, method="joint", members="2", budgets="1,2", id_data=images)
    whole = select().content
    save = TurnsJournal.save

    def interrupted(self: TurnsJournal, found: Any) -> None:
        save(self, found)
        raise KeyboardInterrupt

    monkeypatch.setattr(TurnsJournal, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        select(output="s")
    monkeypatch.setattr(TurnsJournal, "save", save)
    with pytest.raises(HydractlError, match="another"):
        select(output="s", resume=True, objective="acc")
    assert select(output="s", resume=True).content["members"] == whole["members"]
    assert not list(here.glob("*state*"))


def test_fuse_and_prune_make_what_was_selected(run: Command, here: Path, vit: Path, images: Path, noise: Path) -> None:
    arguments = ("--circuit=a.json", "--budgets=1,2", "--members=2", "--id-data", images, "--ood-data", noise)
    save_circuit("a.json", (1, 0), (1, 2), (0, 0), (0, 2))
    folder = here / "chosen"
    folder.mkdir()
    run("select", vit, *arguments, "--hydra", "hydra", "-o", f"{folder}/s.json", "--quiet")
    whole = Path("hydra").read_bytes()
    assert run("fuse", "--selection=chosen/s.json", "-o", "f").out == "f\n"
    assert Path("f").read_bytes() == whole
    chosen = hydractl.select(vit, circuit=["a.json"], budgets="1,2", members="2", id_data=images, ood_data=noise)
    hydractl.save(hydractl.fuse(selection=chosen), "g")
    assert Path("g").read_bytes() == whole
    made = run("prune", "--selection=chosen/s.json", "-o", "m{member}")
    assert made.out.splitlines() == ["m0", "m1"]
    run("fuse", "m0", "m1", "-o", "again")
    refused = run("evaluate", "m0", "--id-data", images)
    assert (refused.code, "selection" in refused.err) == (1, True)
    first, second = read_checkpoint("hydra"), read_checkpoint("again")
    assert first.heads == second.heads and first.shared == second.shared
    assert all(torch.equal(tensor.load(), second.tensors[name].load()) for name, tensor in first.tensors.items())
    apart = hydractl.fuse(selection="chosen/s.json", separate="all").checkpoint
    assert apart.provenance["options"]["separate"] != first.provenance["options"].get("separate")


def test_files_that_were_selected_are_found_by_what_they_hold(
    run: Command, here: Path, vit: Path, images: Path
) -> None:
    for seed in (0, 1):
        run("prune", vit, "--method=random", "--budget=2", f"--seed={seed}", "-o", f"m{seed}")
    data = ("--id-data", images, "--objective=nll", "--members=3")
    run("select", vit, "m0", "m1", *data, "--hydra", "hydra", "-o", "s.json")
    run("fuse", "--selection=s.json", "-o", "f")
    assert Path("f").read_bytes() == Path("hydra").read_bytes()
    Path("m0").rename("moved")
    assert "m0" in run("fuse", "--selection=s.json", "-o", "g").err
    assert run("fuse", "moved", "--selection=s.json", "-o", "g").code == 0
    assert Path("g").read_bytes() == Path("hydra").read_bytes()
    Path("m1").write_bytes(Path("moved").read_bytes())
    changed = run("fuse", "moved", "--selection=s.json", "-o", "h")
    assert (changed.code, "was made from another model" in changed.err) == (1, True)


def test_a_selection_written_by_hand(here: Path, vit: Path) -> None:
    members = [{"dropped": circuit((0, 1))["steps"]}, {"dropped": []}]
    Path("s.json").write_text(json.dumps({"format": "hydractl-selection", "version": 1, "members": members}))
    hydra = hydractl.fuse([vit], selection="s.json").checkpoint
    assert [len(member_heads(hydra.heads, number)) for number in (0, 1)] == [7, 8]
