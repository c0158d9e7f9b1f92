"""BatchEnsemble: the published product, and what of it trains."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import linear

from hydractl.checkpoint.contents import Checkpoint
from hydractl.training.batch_ensemble import RankOne, build
from hydractl.training.ensembles import Ensemble
from hydractl.training.factors import Layout, spread
from hydractl.training.network import network_checkpoint, trained_parameters
from tests.training.conftest import RECIPE


@pytest.mark.parametrize("axis", [0, 1, None])
def test_a_batch_ensemble_weight_is_the_published_product(axis: int | None) -> None:
    torch.manual_seed(0)
    shared, x = torch.randn(4, 5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    weight = torch.stack([shared] * 3) if axis is None else torch.cat([shared] * 3, axis)
    factors = RankOne(weight, Layout(3, axis))
    assert torch.equal(factors.right_inverse(weight), shared)
    torch.nn.init.normal_(factors.s)
    torch.nn.init.normal_(factors.r)
    folded = factors(shared).unbind() if axis is None else factors(shared).chunk(3, axis)
    for member in range(3):  # y = ((x * r) W^T) * s
        expected = linear(x * factors.r[member, 0], shared) * factors.s[member, :, 0]
        torch.testing.assert_close(linear(x, folded[member]), expected, rtol=0, atol=1e-10)


def test_factors_train_where_the_recipe_lets_their_weight(vit: Checkpoint) -> None:
    ensemble = Ensemble("batch-ensemble", 3)
    network = build(spread(vit, ensemble), replace(RECIPE, train_only=("mlp",)), ensemble)
    assert {name.split(".")[4] for name, _, _ in trained_parameters(network)} == {"fc1", "fc2"}
    network_checkpoint(network, spread(vit, ensemble)).verify()
