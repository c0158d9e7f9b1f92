from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.checkpoint.heads import Head
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.inference import load_checkpoint
from hydractl.surgery.slicing import drop_heads, fold
from hydractl.training.conditions import Training
from hydractl.training.ensembles import METHODS, Ensemble, MaskEnsemble, features_kept, masks, spread
from hydractl.training.network import build_network, trained_parameters
from hydractl.training.trainset import TrainingData
from tests.training.conftest import RECIPE, Fit, image_samples, text_samples
from tests.training.test_trainer import float64

EVERY = pytest.mark.parametrize("ensemble", [Ensemble(method(), 3) for method in METHODS], ids=lambda e: e.method.name)
LORA, BATCH, MASK = (Ensemble(method(), 3) for method in METHODS)


@pytest.fixture(params=["vit", "bert"])
def dense(request: pytest.FixtureRequest) -> Checkpoint:
    checkpoint: Checkpoint = float64(request.getfixturevalue(request.param))
    return checkpoint


def inputs(checkpoint: Checkpoint) -> dict[str, Tensor]:
    torch.manual_seed(0)
    if checkpoint.spec.modality == "text":
        return {"input_ids": torch.randint(5, 10, (4, 6))}
    return {"pixel_values": torch.randn(4, 3, 8, 8, dtype=torch.float64)}


@pytest.mark.parametrize(
    "ensemble", [LORA, BATCH, Ensemble(MaskEnsemble(mask_scale=1.0), 3)], ids=lambda e: e.method.name
)
def test_members_that_change_nothing_are_the_dense_network(dense: Checkpoint, ensemble: Ensemble) -> None:
    network = build_network(spread(dense, ensemble, replace(RECIPE, factor_width=0.0), 1), RECIPE)
    with torch.no_grad():
        expected = load_checkpoint(dense)(**inputs(dense)).member_logits
        found = network.eval()(**inputs(dense)).member_logits
    assert found.shape[0] == 3
    assert_close(found, expected.expand_as(found), rtol=0, atol=1e-10)


@EVERY
def test_what_was_trained_is_stored_and_may_be_folded(
    dense: Checkpoint, ensemble: Ensemble, folder: Path, fit: Fit
) -> None:
    data = TrainingData(text_samples(20) if dense.spec.modality == "text" else image_samples(20))
    recipe = replace(RECIPE, lr=(0.1,))
    result = fit(dense, Training(data, recipe, ensemble=ensemble))
    write_checkpoint(result.checkpoint, folder / "stored")
    stored = read_checkpoint(folder / "stored")
    assert (stored.spec.adapter, stored.units) == (result.checkpoint.spec.adapter, result.checkpoint.units)
    assert (stored.spec.adapter is None) == bool(stored.units)
    logits = load_checkpoint(stored)(**inputs(dense)).member_logits
    assert (logits[0] - logits[1]).abs().max() > 1e-6  # members have come apart
    if stored.spec.adapter is None:
        return
    folding = replace(ensemble, method=replace(ensemble.method, fold=True))
    trained = fit(dense, Training(data, recipe, ensemble=folding), "folded")
    assert trained.checkpoint.spec.adapter is None
    assert identity(trained.checkpoint) == identity(fold(stored))


def trained(checkpoint: Checkpoint, ensemble: Ensemble, **changes: object) -> set[str]:
    recipe = replace(RECIPE, **changes)
    network = build_network(spread(checkpoint, ensemble, recipe, 0), recipe, ensemble.method.trains)
    return {name for name, _, _ in trained_parameters(network)}


def test_deltas_and_classifiers_train(vit: Checkpoint) -> None:
    names = trained(vit, LORA)
    assert all(name.startswith("classifier.") or name.endswith((".lora_a", ".lora_b")) for name in names)
    assert sum(1 for name in names if name.endswith(".lora_a")) == 4 * 2
    deltas = trained(vit, LORA, train_only=("attention",))
    assert deltas == {name for name in names if "lora" in name} == trained(vit, LORA, train_only=("adapter",))


def test_factors_train_where_the_recipe_lets_their_weight(vit: Checkpoint) -> None:
    names = trained(vit, BATCH, train_only=("mlp",))
    assert {name.rpartition(".")[2] for name in names} == {"weight", "bias", "r", "s"}
    assert {name.split(".")[4] for name in names} == {"fc1", "fc2"}
    assert not any(name.endswith(".kept") for name in trained(vit, MASK))


@EVERY
def test_a_layer_without_heads_has_nothing_to_adapt(vit: Checkpoint, ensemble: Ensemble) -> None:
    pruned = float64(drop_heads(vit, [Head("vision", 0, head) for head in range(4)]))
    made = spread(pruned, ensemble, replace(RECIPE, factor_width=0.0), 0)
    plain, fast = load_checkpoint(made), load_checkpoint(made).optimize_for_inference()
    assert_close(fast(**inputs(pruned)).member_logits, plain(**inputs(pruned)).member_logits, rtol=0, atol=1e-10)
    assert not any("layers.0.attention.q.lora_b" in name for name in trained(pruned, ensemble))


def test_masks_keep_as_published() -> None:
    # Three members of scale 2 draw half of the places: 7/8 of those are drawn, so 16 kept leave 28 of 32.
    assert features_kept(28, 3, 2.0) == 16
    kept = masks(28, 3, 2.0, torch.Generator().manual_seed(0))
    assert kept.shape == (3, 16) and (kept.diff() > 0).all()
    assert set(kept.flatten().tolist()) == set(range(28))
    assert features_kept(28, 3, 1.0) == 28
    # Where they have next to nothing in common, they divide the features among themselves.
    assert sorted(masks(4, 2, 100.0, torch.Generator()).flatten().tolist()) == [0, 1, 2, 3]
