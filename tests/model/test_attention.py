"""Attention by plain products is torch's own, in what it gives and in its gradients, and trains in half precision."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hydractl.model import attention
from hydractl.model.attention import attend, attend_by_products
from hydractl.model.positions import Positions

MASK = torch.tensor([[True, True, True, True, True], [True, True, True, False, False]])


def inputs(dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 5, 3, 8, generator=generator, dtype=dtype).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize(("masked", "causal"), [(False, False), (True, False), (False, True)])
def test_products_are_torchs_own_attention(masked: bool, causal: bool) -> None:
    results = []
    for function in (attend_by_products, F.scaled_dot_product_attention):
        qkv = inputs(torch.float64)
        allowed = MASK[:, None, None] if masked else None
        z = function(*(t.transpose(1, 2) for t in qkv), attn_mask=allowed, is_causal=causal, dropout_p=0.0, scale=0.3)
        z.sin().sum().backward()
        results.append([z, *(t.grad for t in qkv)])
    torch.testing.assert_close(*results, rtol=0, atol=1e-10)


@pytest.mark.parametrize("tokens", [5, 4])
def test_half_precision_trains_by_products_up_to_a_length(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def counted(*args: Tensor, **kwargs: Tensor) -> Tensor:
        called.append(args)
        return attend_by_products(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(attention, "PRODUCTS_UP_TO", tokens)
    monkeypatch.setattr(attention, "attend_by_products", counted)
    for dtype in (torch.float32, torch.bfloat16):
        q, k, v = inputs(dtype)
        attend((q, k, v), MASK, Positions(8, causal=False)).float().sum().backward()
        attend((q.detach(), k.detach(), v.detach()), MASK, Positions(8, causal=False))
    assert len(called) == (tokens == 5)  # of the four calls the one that is half precision and wants gradients
