"""Products of several members, whichever way they are computed."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from hydractl.model.linear import grouped


@pytest.mark.parametrize("per_member_bias", [True, False])
@pytest.mark.parametrize("members", [(3, 3), (1, 3), (3, 1)])
def test_float32_in_inference_equals_each_members_product(members: tuple[int, int], per_member_bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, 5, 7, generator=generator) for size in members)
    bias = torch.randn(*([3] if per_member_bias else []), 5, generator=generator)
    expected = (
        x.double() @ weight.double().mT + (bias.double()[:, None] if per_member_bias else bias.double())
    ).float()
    trained = weight.clone().requires_grad_()
    for context in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with context():
            assert_close(grouped(x, trained, bias), expected, rtol=0, atol=1e-5)
