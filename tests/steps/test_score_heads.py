import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTForImageClassification, ViTImageProcessor

import hydractl
from hydractl.circuit.score_methods import SCORE_METHODS, ScoreMethod
from hydractl.errors import ArtifactError, OptionError

pytestmark = pytest.mark.usefixtures("here")


def data_of(method: type[ScoreMethod], inside: Path, outside: Path) -> dict[str, str]:
    """Returns the data that a method takes."""
    places = {"id_data": str(inside), "ood_data": str(outside)}
    return {field.name: places[field.name] for field in fields(method) if field.name in places}  # type: ignore[arg-type]


@pytest.mark.parametrize("method", SCORE_METHODS, ids=lambda method: method.name)
def test_a_loaded_model_is_scored_as_its_file(vit: Path, images: Path, noise: Path, method: type[ScoreMethod]) -> None:
    data = data_of(method, images, noise)
    for name, model in (("path", vit), ("loaded", hydractl.load(vit))):
        scored = hydractl.score_heads(model, method=method.name, **data, output=f"{name}.json")
        assert scored.output == Path(f"{name}.json")
    assert Path("loaded.json").read_bytes() == Path("path.json").read_bytes()
    # A file names the model as seen from where it lies.
    written = json.loads(Path("path.json").read_text())
    assert Path(written["model"]["reference"]).resolve() == vit.resolve()
    assert scored.to_json() | {"model": None} == written | {"model": None}


@pytest.mark.parametrize("method", ["taylor", "deviation", "magnitude", "random"])
def test_scores_of_units_lie_in_the_file_and_prune_follows_them(vit: Path, images: Path, method: str) -> None:
    data = {"id_data": images} if method in ("taylor", "deviation") else {}
    hydractl.score_heads(vit, method=method, units=True, output="scores.json", **data)
    content = json.loads(Path("scores.json").read_text())
    assert [len(row) for row in content["units"]["vision"]] == [24, 24]
    flat = {(layer, n): s for layer, row in enumerate(content["units"]["vision"]) for n, s in enumerate(row)}
    pruned = hydractl.prune(method="scores", scores="scores.json", units=7, budget=1).only
    assert {(unit.layer, unit.unit) for unit in pruned.units} == set(sorted(flat, key=flat.__getitem__)[:7])
    directly = hydractl.prune(vit, method=method, units=7, seed=0, **({**data, "scope": "global"} if data else {}))
    assert set(directly.only.units) == set(pruned.units)
    again = hydractl.score_heads(pruned.checkpoint, method=method, units=True, **data).to_json()["units"]["vision"]
    gone = {(unit.layer, unit.unit) for unit in pruned.units}
    assert {(i, n) for i, row in enumerate(again) for n, score in enumerate(row) if score is None} == gone


def test_the_seed_of_random_scores_is_remembered(vit: Path) -> None:
    assert hydractl.score_heads(vit, method="random", seed=7).to_json()["options"]["seed"] == 7


def test_a_file_without_units_prunes_none(vit: Path) -> None:
    hydractl.score_heads(vit, method="magnitude", output="scores.json")
    with pytest.raises(ArtifactError, match="has no score of vision layer 0 unit 0: .*`units`"):
        hydractl.prune(method="scores", scores="scores.json", units=1)
    with pytest.raises(OptionError, match="`units`.*`method`"):
        hydractl.score_heads(vit, method="ablation", id_data="x", units=True)


@pytest.mark.parametrize("method", SCORE_METHODS, ids=lambda method: method.name)
def test_a_network_without_heads_is_refused(method: type[ScoreMethod], vit: Path, images: Path, noise: Path) -> None:
    bare = hydractl.prune(vit, method="random", budget=8)
    with pytest.raises(OptionError, match="has no heads left"):
        hydractl.score_heads(bare, method=method.name, device="cpu", **data_of(method, images, noise))
    with pytest.raises(OptionError, match="has no heads left"):
        hydractl.extract_circuit(bare, budget="all", id_data=images, ood_data=noise, device="cpu")


def test_separation_keeps_both_distances_and_draws_what_heads_say(vit: Path, images: Path, noise: Path) -> None:
    scored = hydractl.score_heads(vit, method="separation", id_data=images, ood_data=noise, plot="heads.svg")
    scores = scored.to_json()
    assert scores["distances"].keys() == {"euclidean", "mahalanobis", "mean"}
    assert scores["towers"] == scores["distances"]["mahalanobis"]
    picture = Path("heads.svg").read_text()
    for name in ("vision euclidean", "vision mahalanobis", "vision mean"):
        assert f"{name}   head   0" in repr(scored) and f">{name}</text>" in picture
    assert ">ID</text>" in picture and ">OOD</text>" in picture


def test_deviations_are_those_of_what_pieces_add(vit: Path, images: Path) -> None:
    """Computed of transformers' own states; in units of the hidden state."""
    scored = hydractl.score_heads(vit, method="deviation", id_data=images, units=True).to_json()
    model, read = ViTForImageClassification.from_pretrained(vit), {}
    maps = {f"heads {i}": layer.attention.o_proj for i, layer in enumerate(model.vit.layers)}
    maps |= {f"units {i}": layer.mlp.fc2 for i, layer in enumerate(model.vit.layers)}
    for name, module in maps.items():
        module.register_forward_pre_hook(lambda _, inputs, name=name: read.__setitem__(name, inputs[0]))
    files = sorted(images.glob("*/*.png"))
    with torch.no_grad():
        model(**ViTImageProcessor.from_pretrained(vit)([Image.open(file) for file in files], return_tensors="pt"))
    for name, module in maps.items():
        kind, layer = name.split()
        rows = read[name].flatten(0, 1).double()
        entries = rows.var(0, correction=0) * module.weight.double().square().sum(0)
        width = len(entries) // 4 if kind == "heads" else 1
        expected = entries.view(-1, width).sum(1).sqrt().tolist()
        listed = scored["towers" if kind == "heads" else "units"]["vision"][int(layer)]
        np.testing.assert_allclose(listed, expected, rtol=1e-4)
