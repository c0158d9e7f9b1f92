"""Every ensemble: equal to the dense network at first, and what is folded equals what was trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head
from hydractl.errors import OptionError
from hydractl.families.open import read_checkpoint, write_checkpoint
from hydractl.inference import load_checkpoint
from hydractl.surgery.members import split_members
from hydractl.surgery.prune import drop_heads
from hydractl.training.batches import Machine
from hydractl.training.data import TrainingData
from hydractl.training.ensembles import METHODS, Ensemble
from hydractl.training.factors import spread
from hydractl.training.run import fine_tune_checkpoint
from tests.conftest import build_reference
from tests.training.conftest import RECIPE, image_samples, text_samples
from tests.training.test_run import float64

EVERY = pytest.mark.parametrize("ensemble", [Ensemble(method.name, 3) for method in METHODS], ids=lambda e: e.kind)
LORA = Ensemble("lora-ensemble", 3)


@pytest.fixture(params=["vit", "bert"])
def dense(request: pytest.FixtureRequest) -> Checkpoint:
    checkpoint: Checkpoint = float64(request.getfixturevalue(request.param))
    return checkpoint


def inputs(checkpoint: Checkpoint) -> dict[str, Tensor]:
    torch.manual_seed(0)
    if checkpoint.spec.task == "text-classification":
        return {"input_ids": torch.randint(5, 10, (4, 6))}
    return {"pixel_values": torch.randn(4, 3, 8, 8, dtype=torch.float64)}


@EVERY
def test_every_member_starts_as_the_dense_network(dense: Checkpoint, ensemble: Ensemble) -> None:
    network = ensemble.method.build(spread(dense, ensemble), RECIPE, ensemble, 1)
    with torch.no_grad():
        expected = load_checkpoint(dense)(**inputs(dense)).member_logits
        found = network.eval()(**inputs(dense)).member_logits
    assert found.shape[0] == 3
    torch.testing.assert_close(found, expected.expand_as(found), rtol=0, atol=1e-10)


@EVERY
def test_what_is_folded_equals_what_was_trained(
    dense: Checkpoint, ensemble: Ensemble, folder: Path, accelerator: Accelerator
) -> None:
    data = TrainingData(text_samples(20) if dense.spec.task == "text-classification" else image_samples(20))
    recipe = replace(RECIPE, lr=(0.1,))
    result = fine_tune_checkpoint(dense, data, recipe, 0, Machine(folder), accelerator, ensemble=ensemble)
    write_checkpoint(result.checkpoint, folder / "folded")
    folded = read_checkpoint(folder / "folded")
    logits = load_checkpoint(folded)(**inputs(dense)).member_logits
    # Members have come apart, and each alone gives what it gives in the ensemble.
    assert (logits[0] - logits[1]).abs().max() > 1e-6
    for member, alone in zip(logits, split_members(folded), strict=True):
        torch.testing.assert_close(load_checkpoint(alone)(**inputs(dense)).member_logits[0], member, rtol=0, atol=1e-10)
    own = {name for name, slot in dense.slots().items() if slot.group in ensemble.method.own}
    assert folded.tensors.keys() - folded.shared == own


def test_an_ensemble_starts_from_one_network(vit: Checkpoint) -> None:
    with pytest.raises(OptionError, match="has 3 members: lora-ensemble starts from one"):
        spread(spread(vit, LORA), LORA)
    with pytest.raises(OptionError, match="`members` 1: an ensemble has at least two"):
        spread(vit, replace(LORA, members=1))


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match="`method` nonsense: unknown: choose .*batch-ensemble"):
        _ = Ensemble("nonsense", 3).method


def test_a_distilled_network_trains_both_classifiers(tmp_path: Path) -> None:
    distilled = read_checkpoint(build_reference("deit-distilled").save(tmp_path))
    network = LORA.method.build(spread(distilled, LORA), RECIPE, LORA, 0)
    trains = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert {"classifier.weight", "distillation_classifier.weight"} <= trains


def test_a_layer_without_heads_has_nothing_to_factorise(vit: Checkpoint) -> None:
    pruned = drop_heads(vit, [Head("vision", 0, head) for head in range(4)])
    for method in METHODS:
        ensemble = Ensemble(method.name, 2)
        network = method.build(spread(pruned, ensemble), RECIPE, ensemble, 0)
        assert not any("layers.0.attention" in name and ".parametrizations." in name for name in network.state_dict())
