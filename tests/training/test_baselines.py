"""LoRA- and BatchEnsemble: equal to the dense network at first, and what is folded equals what was trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn.functional import linear

from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError
from hydractl.families.open import read_checkpoint, write_checkpoint
from hydractl.inference import load_checkpoint
from hydractl.surgery.members import split_members
from hydractl.training.baselines import Baseline, LoraDelta, RankOne, build_baseline, spread
from hydractl.training.batches import Machine
from hydractl.training.data import TrainingData
from hydractl.training.network import network_checkpoint, trained_parameters
from hydractl.training.run import fine_tune_checkpoint
from tests.training.conftest import RECIPE, image_samples, text_samples
from tests.training.test_run import float64

BASELINES = [Baseline("lora-ensemble", 3, rank=2, alpha=4.0), Baseline("batch-ensemble", 3)]
KINDS = pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.kind)


@pytest.fixture(params=["vit", "bert"])
def dense(request: pytest.FixtureRequest) -> Checkpoint:
    checkpoint: Checkpoint = float64(request.getfixturevalue(request.param))
    return checkpoint


def inputs(checkpoint: Checkpoint) -> dict[str, Tensor]:
    torch.manual_seed(0)
    if checkpoint.spec.task == "text-classification":
        return {"input_ids": torch.randint(5, 10, (4, 6))}
    return {"pixel_values": torch.randn(4, 3, 8, 8, dtype=torch.float64)}


@KINDS
def test_every_member_starts_as_the_dense_network(dense: Checkpoint, baseline: Baseline) -> None:
    network = build_baseline(spread(dense, baseline), RECIPE, baseline, seed=1)
    with torch.no_grad():
        expected = load_checkpoint(dense)(**inputs(dense)).member_logits
        found = network.eval()(**inputs(dense)).member_logits
    assert found.shape[0] == 3
    torch.testing.assert_close(found, expected.expand_as(found), rtol=0, atol=1e-10)


@KINDS
def test_what_is_folded_equals_what_was_trained(
    dense: Checkpoint, baseline: Baseline, folder: Path, accelerator: Accelerator
) -> None:
    data = TrainingData(text_samples(20) if dense.spec.task == "text-classification" else image_samples(20))
    recipe = replace(RECIPE, lr=(0.1,))
    result = fine_tune_checkpoint(dense, data, recipe, 0, Machine(folder), accelerator, baseline=baseline)
    write_checkpoint(result.outcome.checkpoint, folder / "folded")
    folded = read_checkpoint(folder / "folded")
    logits = load_checkpoint(folded)(**inputs(dense)).member_logits
    # Members have come apart, and each alone gives what it gives in the ensemble.
    assert (logits[0] - logits[1]).abs().max() > 1e-6
    for member, alone in zip(logits, split_members(folded), strict=True):
        torch.testing.assert_close(load_checkpoint(alone)(**inputs(dense)).member_logits[0], member, rtol=0, atol=1e-10)
    own = {name.split(".")[-2] for name in folded.tensors.keys() - folded.shared}
    more = {"fc1", "fc2"} | ({"pooler"} if dense.family == "bert" else set())
    assert own == {"q", "k", "v", "o", "classifier"} | (more if baseline.kind == "batch-ensemble" else set())


def test_a_lora_weight_is_the_published_sum() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(3 * 4, 5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    factors = LoraDelta(weight, 0, BASELINES[0], torch.Generator().manual_seed(0))
    torch.nn.init.normal_(factors.b)
    folded = factors(weight).chunk(3)
    for member in range(3):  # h = W x + B A x alpha / r
        delta = linear(linear(x, factors.a[member]), factors.b[member]) * 4.0 / 2
        expected = linear(x, weight.chunk(3)[member]) + delta
        torch.testing.assert_close(linear(x, folded[member]), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_batch_ensemble_weight_is_the_published_product(axis: int) -> None:
    torch.manual_seed(0)
    shared, x = torch.randn(4, 5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    weight = torch.stack([shared] * 3) if axis == -1 else torch.cat([shared] * 3, axis)
    factors = RankOne(weight, axis, 3)
    assert torch.equal(factors.right_inverse(weight), shared)
    torch.nn.init.normal_(factors.s)
    torch.nn.init.normal_(factors.r)
    folded = factors(shared).unbind() if axis == -1 else factors(shared).chunk(3, axis)
    for member in range(3):  # y = ((x * r) W^T) * s
        expected = linear(x * factors.r[member, 0], shared) * factors.s[member, :, 0]
        torch.testing.assert_close(linear(x, folded[member]), expected, rtol=0, atol=1e-10)


def test_what_each_trains(vit: Checkpoint) -> None:
    lora, batch = BASELINES
    network = build_baseline(spread(vit, lora), RECIPE, lora, seed=0)
    names = {name for name, p in network.named_parameters() if p.requires_grad}
    assert all(name.startswith("classifier.") or name.endswith(("0.a", "0.b")) for name in names)
    assert sum(1 for name in names if name.endswith("0.a")) == 4 * 2
    network = build_baseline(spread(vit, batch), replace(RECIPE, train_only=("mlp",)), batch, seed=0)
    assert {name.split(".")[4] for name, _, _ in trained_parameters(network)} <= {"fc1", "fc2"}
    folded = network_checkpoint(network, spread(vit, batch))
    folded.verify()


def test_an_ensemble_starts_from_one_network(vit: Checkpoint) -> None:
    with pytest.raises(OptionError, match="has 3 members: lora-ensemble starts from one"):
        spread(spread(vit, BASELINES[0]), BASELINES[0])
    with pytest.raises(OptionError, match="--members 1: an ensemble has at least two"):
        spread(vit, Baseline("lora-ensemble", 1))
