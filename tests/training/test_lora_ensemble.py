"""LoRA-Ensemble: the published sum, and what of it trains."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn.functional import linear

from hydractl.checkpoint.contents import Checkpoint
from hydractl.training.ensembles import Ensemble
from hydractl.training.factors import Layout, spread
from hydractl.training.lora_ensemble import LoraDelta, build
from tests.training.conftest import RECIPE

LORA = Ensemble("lora-ensemble", 3, rank=2, alpha=4.0)


def test_a_lora_weight_is_the_published_sum() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(3 * 4, 5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    factors = LoraDelta(weight, Layout(3, 0), LORA, torch.Generator().manual_seed(0))
    torch.nn.init.normal_(factors.b)
    folded = factors(weight).chunk(3)
    for member in range(3):  # h = W x + B A x alpha / r
        delta = linear(linear(x, factors.a[member]), factors.b[member]) * 4.0 / 2
        expected = linear(x, weight.chunk(3)[member]) + delta
        torch.testing.assert_close(linear(x, folded[member]), expected, rtol=0, atol=1e-10)


def test_deltas_and_classifiers_train(vit: Checkpoint) -> None:
    network = build(spread(vit, LORA), RECIPE, LORA, seed=0)
    names = {name for name, p in network.named_parameters() if p.requires_grad}
    assert all(name.startswith("classifier.") or name.endswith(("0.a", "0.b")) for name in names)
    assert sum(1 for name in names if name.endswith("0.a")) == 4 * 2


def test_a_recipe_can_leave_the_classifiers_out(vit: Checkpoint) -> None:
    network = build(spread(vit, LORA), replace(RECIPE, train_only=("attention",)), LORA, seed=0)
    names = {name for name, p in network.named_parameters() if p.requires_grad}
    assert names and all(name.endswith(("0.a", "0.b")) for name in names)
