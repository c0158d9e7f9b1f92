"""Selecting members: Python and the command line choose alike, and nothing of it leaks into an evaluation."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import ViTForImageClassification

import hydractl
from hydractl.checkpoint.heads import Head, Unit, member_heads
from hydractl.checkpoint.layout import every_unit, member_units
from hydractl.errors import ArtifactError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.selection.selection_run import Store
from hydractl.surgery.slicing import with_dtype
from hydractl.systems.cost import multiply_adds
from tests.cli.conftest import Command, circuit, interrupt_at, save_circuit
from tests.references import Reference
from tests.surgery.test_slicing import zero_heads
from tests.surgery.test_units import unit_reader


@pytest.fixture(autouse=True)
def _circuits(place: Path) -> None:
    save_circuit("a.json", (1, 0), (1, 2), (0, 0), (0, 2))
    save_circuit("b.json", (1, 3), (1, 1), (0, 3), (0, 1))


OPTIONS = ["--circuit=a.json", "--circuit=b.json", "--budgets=1,2", "--pools=4", "--draws=2", "--members=2"]
DATA = ["--id-data=pets", "--ood-data=far/noise=noise"]


def written() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path("s.json").read_text())
    return content


def test_an_interrupted_selection_goes_on_to_the_same(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("--id-data=pets", "--ood-data=noise", "--objective=ood", "--batch-size=4")
    arguments = ("select", "vit", *OPTIONS, *asked, "-o", "s", "--hydra")
    run(*arguments, "whole", "--quiet")
    whole, model = Path("s").read_bytes(), Path("whole").read_bytes()
    Path("s").unlink()
    interrupt_at(monkeypatch, Store, "write", 3)
    assert run(*arguments, "hydra").code == 130
    assert "continue with --resume" in run(*arguments, "hydra").err
    assert "another" in run(*arguments, "hydra", "--resume", "--budgets=1").err
    assert run(*arguments, "hydra", "--resume", "--quiet").code == 0
    assert (Path("s").read_bytes(), Path("hydra").read_bytes()) == (whole, model)


def test_members_share_a_trunk_where_that_is_asked_for(run: Command) -> None:
    arguments = ("--trunks=1", "--circuit=a.json", "--budgets=3", "--random=3", "--members=2", "--without-dense")
    run("select", "vit", *arguments, *DATA, "--hydra", "hydra", "-o", "s.json", code=0)
    assert read_checkpoint("hydra").heads["vision"][0] == ((0, 1, 2, 3),) * 2
    assert written()["trunk"] == 1


def test_shares_are_of_the_heads_above_a_trunk() -> None:
    for trunks, lacking in (("", {4}), ("1", {2})):
        asked = {"random": 6, "members": "2", "budgets": "50%", "trunks": trunks}
        found = hydractl.select("vit", id_data="pets", without_dense=True, **asked).content
        assert {len(member["dropped"]) for member in found["members"]} == lacking
        assert all(head["layer"] == 1 for member in found["members"] for head in member["dropped"] if trunks)


def test_fuse_and_prune_make_what_was_selected(run: Command) -> None:
    asked = {"circuit": ["a.json"], "budgets": "1,2", "members": "2", "id_data": "pets", "ood_data": "noise"}
    Path("chosen").mkdir()
    chosen = hydractl.select("vit", **asked, hydra="hydra", output="chosen/s.json")
    whole = Path("hydra").read_bytes()
    assert run("fuse", "--selection=chosen/s.json", "-o", "f").out == "f\n"
    hydractl.save(hydractl.fuse(selection=chosen), "g")
    assert Path("f").read_bytes() == Path("g").read_bytes() == whole
    made = run("prune", "--selection=chosen/s.json", "-o", "m{member}")
    assert made.out.splitlines() == ["m0", "m1"]
    hydractl.fuse(["m0", "m1"], output="again")
    refused = run("evaluate", "m0", "--id-data=pets")
    assert (refused.code, "selection" in refused.err) == (1, True)
    first, second = read_checkpoint("hydra"), read_checkpoint("again")
    assert first.heads == second.heads and first.shared == second.shared
    assert all(torch.equal(tensor.load(), second.tensors[name].load()) for name, tensor in first.tensors.items())
    apart = hydractl.fuse(selection="chosen/s.json", separate="all").checkpoint
    assert apart.provenance["options"]["separate"] != first.provenance["options"].get("separate")


@pytest.mark.parametrize("trunk", [0, 1])
def test_members_lose_units_too_and_share_the_best(run: Command, trunk: int) -> None:
    scores = hydractl.score_heads("vit", method="magnitude", units=True, output="u.json").to_json()["units"]["vision"]
    asked = ["--circuit=a.json", "--budgets=1,2", "--members=2", "--without-dense", *([f"--trunks={trunk}"] * trunk)]
    cut = ["--units=25%", "--unit-scores=u.json"]
    run("select", "vit", *asked, *cut, *DATA, "-o", "s.json", "--hydra", "hydra", code=0)
    run("fuse", "--selection=s.json", "-o", "f", code=0)
    assert Path("f").read_bytes() == Path("hydra").read_bytes()
    run("prune", "--selection=s.json", "-o", "m{member}", code=0)
    hydra, reference = read_checkpoint("hydra"), zeroed_vit()
    for layer in range(2):
        order = sorted(range(24), key=lambda unit: -scores[layer][unit])
        keep = 24 if layer < trunk else 12 if trunk else 18
        kept = [set(own) for own in every_unit(hydra.layout, hydra.spec, "vision")[layer]]
        assert [len(own) for own in kept] == [keep] * 2
        assert kept[0] & kept[1] >= set(order[: keep // 2])
        assert kept[0] | kept[1] == set(order[: 24 if keep > 12 else 18])
    with torch.inference_mode():
        found = from_checkpoint(with_dtype(hydra, torch.float64))(**reference.inputs).member_logits
    for number, member in enumerate(written()["members"]):
        heads = [Head(**head) for head in member["dropped"]]
        lost = [Unit("vision", i, unit) for i, layer in enumerate(member["units"]["vision"]) for unit in layer]
        assert len(lost) == 12 and {unit.layer for unit in lost} == set(range(trunk, 2))
        reference = zeroed_vit(heads, lost)
        assert_close(found[number], reference.logits(), rtol=0, atol=1e-10)
        apart = read_checkpoint(f"m{number}")
        assert member_units(apart.layout, apart.spec, 0) == member_units(hydra.layout, hydra.spec, number)


def zeroed_vit(heads: Sequence[Head] = (), units: Sequence[Unit] = ()) -> Reference:
    """The network in float64, of transformers, with heads and units turned off."""
    model = ViTForImageClassification.from_pretrained("vit").double().eval()
    pixels = torch.randn(3, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    reference = Reference("vit", model, {"pixel_values": pixels})
    zero_heads(reference, heads, {"vision": 4})
    for unit in units:
        unit_reader(reference, read_checkpoint("vit").spec.tower(unit.tower), unit.layer).weight.data[:, unit.unit] = 0
    return reference


def test_units_count_in_limits_and_have_scores_of_the_network(run: Command) -> None:
    hydractl.score_heads("vit", method="random", units=True, output="u.json")
    asked = {"random": 4, "budgets": "2", "members": "3", "without_dense": True, "id_data": "pets"}
    with pytest.raises(OptionError):
        hydractl.select("vit", **asked, budget_macs="2x")
    units = {"units": "75%", "unit_scores": "u.json"}
    made = hydractl.select("vit", **asked, budget_macs="2x", **units)
    counted = [step["multiply_adds"] for step in made.content["curve"]]
    assert counted[-1] == multiply_adds(made.checkpoint.spec, made.checkpoint.layout)
    assert counted[-1] <= 2 * made.content["baseline"]["multiply_adds"]
    with pytest.raises(OptionError, match="`unit_scores`"):
        hydractl.select("vit", **asked, units="10%")
    member = hydractl.prune("vit", method="random", budget=1)
    with pytest.raises(OptionError, match="`units`"):
        hydractl.select("vit", [member], members="2", id_data="pets", **units)
    hydractl.score_heads("vit", method="random", output="heads.json")
    with pytest.raises(ArtifactError, match=r"heads\.json"):
        hydractl.select("vit", **asked, units="10%", unit_scores="heads.json")


def test_files_are_candidates_and_are_found_by_what_they_hold(run: Command) -> None:
    for seed in (0, 1):
        hydractl.prune("vit", method="random", budget=2, seed=seed, output=f"m{seed}")
    run(
        "select",
        "vit",
        "m0",
        "m1",
        "--id-data=pets",
        "--objective=nll",
        "--members=3",
        "--hydra=hydra",
        "--output=s.json",
    )
    assert {member["candidate"] for member in written()["members"]} == {"dense", "m0", "m1"}
    run("fuse", "--selection=s.json", "-o", "f")
    assert Path("f").read_bytes() == Path("hydra").read_bytes()
    Path("m0").rename("moved")
    assert "m0" in run("fuse", "--selection=s.json", "-o", "g").err
    assert run("fuse", "moved", "--selection=s.json", "-o", "g").code == 0
    assert Path("g").read_bytes() == Path("hydra").read_bytes()
    Path("m1").write_bytes(Path("moved").read_bytes())
    changed = run("fuse", "moved", "--selection=s.json", "-o", "h")
    assert (changed.code, "was made from another model" in changed.err) == (1, True)


def test_a_selection_written_by_hand() -> None:
    members = [{"dropped": circuit((0, 1))["steps"]}, {"dropped": []}]
    Path("s.json").write_text(json.dumps({"format": "hydractl-selection", "version": 1, "members": members}))
    hydra = hydractl.fuse(["vit"], selection="s.json").checkpoint
    assert [len(member_heads(hydra.heads, number)) for number in (0, 1)] == [7, 8]
