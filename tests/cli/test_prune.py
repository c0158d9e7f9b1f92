import json
from pathlib import Path
from typing import Any

import pytest
import torch

import hydractl
from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.errors import OptionError
from hydractl.families.load import read_checkpoint
from hydractl.surgery.prune_methods import PRUNE_METHODS
from tests.cli.conftest import Command, save_clip
from tests.cli.conftest import circuit as ranked
from tests.conftest import build_reference

RANKING = [Head("vision", 1, 3), Head("vision", 0, 0), Head("vision", 1, 0), Head("vision", 0, 2)]


def circuit(**changes: Any) -> dict[str, Any]:
    return ranked((1, 3), (0, 0), (1, 0), (0, 2), **changes)


def scores(**changes: Any) -> dict[str, Any]:
    rows = [[0.9, 0.1, 0.8, 0.7], [0.2, 0.6, 0.05, 0.5]]
    return {"format": "hydractl-scores", "version": 1, "towers": {"vision": rows}, **changes}


def reference(model: Path) -> dict[str, str]:
    return {"reference": str(model), "sha256": identity(read_checkpoint(model))}


def kept(path: str | Path) -> set[Head]:
    return set(member_heads(read_checkpoint(path).heads, 0))


def test_the_plain_command_works_beside_a_circuit(hydractl: Command, here: Path, vit: Path) -> None:
    (here / "circuit.json").write_text(json.dumps(circuit(objective="avg", model=reference(vit))))
    result = hydractl("prune", "--method", "circuit", "--budget", "2")
    assert (result.code, result.out) == (0, "vit-circuit-avg-2.safetensors\n")
    assert kept("vit-circuit-avg-2.safetensors") == kept(vit) - set(RANKING[:2])


def test_provenance_says_how_but_not_where_or_when(hydractl: Command, here: Path, vit: Path) -> None:
    record = {"search": {"samples": 1, "complete": True, "hashes": "eJxjYGBgAAAABAAB"}}
    (here / "c.json").write_text(json.dumps(circuit(objective="ood", search_data=record)))
    hydractl("prune", vit, "--method=circuit", "--budget=1", "--circuit=c.json", "-o", "m1")
    provenance = read_checkpoint("m1").provenance
    assert provenance["command"] == "prune"
    assert provenance["options"] == {"method": "circuit", "budget": 1, "objective": "ood"}
    assert provenance["search_data"] == record
    assert provenance["inputs"] == [{"sha256": reference(vit)["sha256"]}]
    assert str(here) not in json.dumps(dict(provenance))


def test_numbers_keep_their_precision_unless_another_is_asked_for(hydractl: Command, here: Path, vit: Path) -> None:
    for name, options in (("same", ()), ("half", ("--dtype=bfloat16",))):
        hydractl("prune", vit, "--method=random", "--budget=1", "-o", name, *options)
    same, half = read_checkpoint("same"), read_checkpoint("half")
    assert {tensor.dtype for tensor in same.tensors.values()} == {torch.float32}
    for name, tensor in half.tensors.items():
        assert torch.equal(tensor.load(), same.tensors[name].load().bfloat16())
    assert half.provenance["options"]["dtype"] == "bfloat16"
    hydractl("fuse", "same", vit, "-o", "hydra", "--dtype=float16")
    assert {tensor.dtype for tensor in read_checkpoint("hydra").tensors.values()} == {torch.float16}


#: Damage of any kind is tried in tests/test_artifacts.py; these fit their form, and not the model or the budget.
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "twice": (ranked((1, 3), (1, 3)), "step 1 drops vision layer 1 head 3 a second time"),
    "too short": (ranked((1, 3)), "ranks 1 heads"),
    "not this size": (ranked((9, 0), (9, 1)), "has no vision layer 9"),
    "of another model": (circuit(model={"reference": "v", "sha256": "0" * 64}), "was made from another model"),
    "no format": ({"steps": circuit()["steps"]}, '"format": "hydractl-circuit", "version": 1'),
    "no model named": (circuit(), "MODEL"),
    "absent tower": (scores(towers={"text": [[1]]}), "scores a text tower"),
    "too few": (scores(towers={"vision": [[1, 2, 3, 4]]}), "has no score of vision layer 1 head 0"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_artifacts_that_do_not_fit(hydractl: Command, here: Path, vit: Path, case: str) -> None:
    content, named = UNFIT[case]
    method = "scores" if "towers" in content else "circuit"
    (here / f"{method}.json").write_text(json.dumps(content))
    model = () if case == "no model named" else (vit,)
    result = hydractl("prune", *model, f"--method={method}", "--budget=2")
    assert (result.code in (1, 2), result.err.count("\n"), result.out) == (True, 1, "")
    assert named in result.err
    assert [path.name for path in here.iterdir()] == [f"{method}.json"]


def test_scores_of_two_towers(hydractl: Command, here: Path) -> None:
    clip = build_reference("clip").save(here / "clip")
    towers = {"vision": [[9.0, 8.0, 7.0]] * 3, "text": [[0.1, 0.2, 0.3, 0.4]] * 3}
    content = {"format": "hydractl-scores", "version": 1, "method": "taylor", "towers": towers}
    (here / "scores.json").write_text(json.dumps(content))
    prune = ["prune", clip, "--method=scores", "--scores=scores.json", "--budget=2"]
    both = hydractl(*prune, "-o", "both")
    assert both.err.startswith("note: taylor scores of two towers differ in scale: name one of them with --towers, or")
    assert [heads[0] for heads in read_checkpoint("both").heads["vision"]] == [(0, 1, 2)] * 3
    one = hydractl(*prune, "--towers=vision", "-o", "one")
    assert (one.code, "two towers" in one.err) == (0, False)
    assert [heads[0] for heads in read_checkpoint("one").heads["vision"]] == [(0, 1), (0, 1), (0, 1, 2)]
    (here / "scores.json").write_text(json.dumps({**content, "towers": {"vision": towers["vision"]}}))
    missing = hydractl(*prune, "--towers=text", "-o", "none")
    assert (missing.code, "text tower" in missing.err) == (2, True)


def test_prune_by_taylor_goes_layer_by_layer(hydractl: Command, here: Path, vit: Path, images: Path) -> None:
    arguments = ("prune", vit, "--method=taylor", "--budget=3", f"--id-data={images}", "--samples=6")
    hydractl(*arguments, "-o", "m1", code=0)
    checkpoint = read_checkpoint("m1")
    assert [len(layer[0]) for layer in checkpoint.heads["vision"]] == [2, 3]
    assert checkpoint.provenance["search_data"]["calibration"]["samples"] == 6
    assert "6 of 12 samples were used" in hydractl("evaluate", "m1", "--id-data", images).err


@pytest.mark.parametrize("method", ["taylor", "taylor-oneshot", "deviation"])
def test_each_member_draws_its_samples_as_a_run_with_that_seed(vit: Path, images: Path, method: str) -> None:
    options: dict[str, Any] = {"method": method, "id_data": str(images), "samples": 2, "budget": 3}
    made = hydractl.prune(vit, **options, members=4, seed=5).members
    alone = [hydractl.prune(vit, **options, seed=seed) for seed in range(5, 9)]
    assert [member.dropped for member in made] == [single.dropped for single in alone]
    seen = [[network.checkpoint.provenance["search_data"] for network in networks] for networks in (made, alone)]
    assert seen[0] == seen[1] and seen[0][0] != seen[0][1]
    dealt = hydractl.prune(vit, **options, units=4, members=2, seed=5).members  # units are dealt out by one score
    assert dealt[0].dropped == dealt[1].dropped and dealt[0].units != dealt[1].units


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_prune_by_taylor_at_once_is_pruning_by_the_scores_of_the_whole_model(
    hydractl: Command, here: Path, vit: Path, images: Path, scope: str
) -> None:
    options = [f"--id-data={images}", "--batch-size=5", "--json"]
    at_once = hydractl("prune", vit, "--method=taylor-oneshot", "--budget=3", f"--scope={scope}", *options, code=0)
    written = json.loads(at_once.out)
    assert written["output"] == f"vit-taylor-oneshot-{scope}-3.safetensors"
    assert hydractl("score-heads", vit, "--method=taylor", f"--id-data={images}", "--batch-size=5").code == 0
    scored = hydractl("prune", "--method=scores", "--budget=3", f"--scope={scope}", "--json")
    assert written["dropped"] == json.loads(scored.out)["dropped"]
    assert read_checkpoint(written["output"]).provenance["options"]["method"] == "taylor-oneshot"


@pytest.fixture
def ranked_here(here: Path) -> Path:
    """A current folder with a circuit and scores."""
    (here / "circuit.json").write_text(json.dumps(circuit(objective="avg")))
    (here / "scores.json").write_text(json.dumps(scores(method="taylor")))
    return here


@pytest.mark.parametrize("method", PRUNE_METHODS, ids=lambda method: method.name)
def test_a_loaded_model_is_pruned_like_its_file(ranked_here: Path, vit: Path, images: Path, method: type) -> None:
    data = {"id_data": str(images)} if "id_data" in method.__dataclass_fields__ and method.name != "circuit" else {}
    hydractl.prune(vit, method=method.name, budget=2, **data, output="m1")
    kept = hydractl.prune(hydractl.load(vit), method=method.name, budget=2, **data)
    hydractl.save(kept, "m2")
    assert Path("m1").read_bytes() == Path("m2").read_bytes()


def test_results_of_searches_and_scores_are_followed(ranked_here: Path, vit: Path, images: Path, noise: Path) -> None:
    found = hydractl.extract_circuit(vit, id_data=images, ood_data=noise, budget=2)
    scored = hydractl.score_heads(vit, method="taylor", id_data=images)
    followed = hydractl.prune(method="circuit", circuit=found, budget=2)
    assert tuple(followed.dropped) == found.circuit.ranking
    with pytest.raises(OptionError, match="a circuit .*got list"):
        hydractl.prune(vit, method="circuit", circuit=list(RANKING), budget=2)
    assert followed.checkpoint.provenance["search_data"] == found.to_json()["avg"]["search_data"]
    lowest = hydractl.prune(method="scores", scores=scored, budget=2)
    assert lowest.checkpoint.provenance["search_data"] == scored.to_json()["search_data"]


def test_a_folder_gets_a_file_that_says_how_it_was_made(ranked_here: Path, vit: Path) -> None:
    pruned = hydractl.prune(vit, method="circuit", circuit="circuit.json", budget=2, pool=3, seed=5, output=ranked_here)
    assert pruned.output == ranked_here / "vit-circuit-avg-2-pool3-seed5.safetensors"
    assert hydractl.load(pruned.output).members == 1
    above = {head for head in RANKING[:3] if head.layer >= 1}  # of the pool, not of the circuit, above a trunk
    for seed in range(9):
        drawn = hydractl.prune(vit, method="circuit", circuit="circuit.json", budget=1, pool=3, trunk=1, seed=seed)
        assert set(drawn.dropped) <= above


@pytest.mark.parametrize("method", ["taylor", "scores", "random", "magnitude"])
def test_a_budget_of_multiply_adds_spends_on_heads_and_units(here: Path, vit: Path, images: Path, method: str) -> None:
    data = {"id_data": images} if method == "taylor" else {}
    hydractl.score_heads(vit, method="magnitude", units=True, output="scores.json")
    pruned = hydractl.prune(vit, method=method, budget_macs="0.4x", output="cut", **data).only
    whole, left = (multiply_adds(read_checkpoint(path).spec, read_checkpoint(path).layout) for path in (vit, "cut"))
    head, unit = 4 * 5 * (4 * 16 + 2 * 5), 2 * 5 * 16  # of 5 tokens, 4 and 16 wide
    assert 0.4 * whole - unit < left <= 0.4 * whole
    assert whole - left == head * len(pruned.dropped) + unit * len(pruned.units)
    assert pruned.dropped and pruned.units
    again = hydractl.prune(vit, method=method, budget_macs=0.4, **data).only
    assert (again.dropped, again.units) == (pruned.dropped, pruned.units)
    if method == "magnitude":  # the same scores as in the file
        followed = hydractl.prune(method="scores", budget_macs="0.4x").only
        assert (followed.dropped, followed.units) == (pruned.dropped, pruned.units)


def test_a_budget_of_multiply_adds_above_a_trunk(here: Path, vit: Path) -> None:
    made = hydractl.prune(vit, method="random", budget_macs="0.7x", members=2, trunk=1, seed=3, output="m{member}")
    assert made.members[0].dropped != made.members[1].dropped
    counts = {multiply_adds(one.checkpoint.spec, one.checkpoint.layout) for one in made.members}
    assert len(counts) == 1
    assert all(piece.layer for one in made.members for piece in (*one.dropped, *one.units))
    for wrong, message in [
        ({"budget_macs": "0.4x", "trunk": 1}, "`budget_macs` 0.4x: 0.5.*x are left"),
        ({"budget_macs": "1x"}, "`budget_macs` 1x: "),
        ({"budget_macs": "some"}, "`budget_macs` some: expected a multiple"),
        ({"budget_macs": "0.4x", "units": 1}, "leave `units` out"),
        ({"budget_macs": "0.4x", "budget": 1}, "leave `budget` out"),
        ({"budget_macs": "0.4x", "scope": "layer"}, "ranks all layers together"),
    ]:
        with pytest.raises(OptionError, match=message):
            hydractl.prune(vit, method="random", **wrong)


def test_members_divide_the_units_of_one_network(ranked_here: Path, vit: Path, images: Path) -> None:
    options = {"units": "33%", "members": 3, "trunk": 1, "id_data": images}
    made = hydractl.prune(vit, method="taylor", output="m{member}", **options)
    assert [one.output.name for one in made.members] == ["m0", "m1", "m2"]
    fused = hydractl.fuse(["m0", "m1", "m2"]).checkpoint
    trunk, layer = fused.units["vision"]
    assert trunk is None and len(set(layer)) == 3 and len({len(own) for own in layer}) == 1
    assert fused.provenance["inputs"][1]["provenance"]["options"]["member"] == 1
    drawn = hydractl.prune(vit, method="random", units=4, budget=2, members=2)
    assert drawn.members[0].dropped != drawn.members[1].dropped
    alone = hydractl.prune(vit, method="magnitude", units=5)
    assert len(alone.members[0].units) == 5 and not alone.dropped
    for wrong, message in [
        ({"method": "circuit", "units": 1}, "`units`: circuit scores heads only"),
        ({"method": "magnitude", "budget": 1, "members": 2}, "`members` 2: all would be the same"),
        ({"method": "random", "units": 10**6}, "`units` 1000000: expected 0 to"),
    ]:
        with pytest.raises(OptionError, match=message):
            hydractl.prune(vit, **wrong)


def output_maps(path: str) -> dict[str, torch.Tensor]:
    return {name: tensor.load() for name, tensor in read_checkpoint(path).tensors.items() if ".attention.o." in name}


def test_a_refit_takes_inputs_without_labels_and_remembers_them(
    hydractl: Command, here: Path, vit: Path, images: Path, noise: Path
) -> None:
    for name, options in (
        ("plain", ()),
        ("refitted", (f"--refit={images}", "--limit=9")),
        ("grey", ("--refit", noise)),
    ):
        hydractl("prune", vit, "--method=random", "--budget=3", "-o", name, *options, code=0)
    assert kept("refitted") == kept("plain")
    assert any(not torch.equal(new, output_maps("plain")[name]) for name, new in output_maps("refitted").items())
    provenance = read_checkpoint("refitted").provenance
    assert provenance["options"]["refit"] == 9 and provenance["options"]["limit"] == 9
    assert list(provenance["search_data"]) == ["refit"]
    refused = hydractl("evaluate", "refitted", "--id-data", images)
    assert refused.code == 1 and "refit" in refused.err


def test_a_refit_of_two_towers_reads_prompts_or_texts(hydractl: Command, here: Path, images: Path) -> None:
    clip = save_clip(here / "clip")
    (here / "captions.csv").write_text("\n".join(["text", "a cat", "a dog and an owl", "two owls", "the cat"]))
    lost = ("prune", clip, "--method=random", "--budget=5", "--seed=1", "--template={label}")
    for name, options in (("plain", ()), ("prompts", ()), ("texts", ("--refit-texts=captions.csv",))):
        refit = () if name == "plain" else (f"--refit={images}",)
        hydractl(*lost, *refit, *options, "-o", name, code=0)
    plain, prompts, texts = (output_maps(name) for name in ("plain", "prompts", "texts"))
    differs = {name for name in plain if not torch.equal(plain[name], prompts[name])}
    assert {name.partition(".")[0] for name in differs} == {"vision", "text"}
    assert {name.partition(".")[0] for name in plain if not torch.equal(prompts[name], texts[name])} == {"text"}
    histories = {name: read_checkpoint(name).provenance["options"] for name in ("plain", "prompts", "texts")}
    assert {name: options.get("template") for name, options in histories.items()} == {
        "plain": None, "prompts": "{label}", "texts": None
    }  # fmt: skip
    assert hydractl(*lost, "--refit-texts=captions.csv").code == 2


def test_a_refit_of_images_alone_needs_no_classes(hydractl: Command, here: Path, noise: Path) -> None:
    clip = save_clip(here / "clip")
    for towers, code in (("vision", 0), ("text", 1)):
        (here / f"{towers}.json").write_text(json.dumps({"format": "hydractl-circuit", "version": 1, "steps": [
            {"tower": towers, "layer": 0, "head": 1}]}))  # fmt: skip
        lost = (f"--circuit={towers}.json", "--budget=1", "--refit", noise)
        made = hydractl("prune", clip, "--method=circuit", *lost, "-o", towers)
        assert made.code == code, made.err
    assert "text tower" in made.err and not (here / "text").exists()


def test_members_draw_heads_of_their_own(hydractl: Command, here: Path, vit: Path, images: Path) -> None:
    made = ("--method=random", "--budget=2", f"--refit={images}")
    hydractl("prune", vit, *made, "--members=3", "--seed=4", "-o", "m{member}", code=0)
    for member in range(3):
        hydractl("prune", vit, *made, f"--seed={4 + member}", "-o", "random", "-f", code=0)
        alone = {name: tensor.load() for name, tensor in read_checkpoint("random").tensors.items()}
        for name, tensor in read_checkpoint(f"m{member}").tensors.items():
            assert torch.equal(tensor.load(), alone[name])
