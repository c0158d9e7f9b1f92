from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hydractl.model.attention import attend_by_products

MASK = torch.tensor([[True, True, True, True, True], [True, True, True, False, False]])


def inputs(dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 5, 3, 8, generator=generator, dtype=dtype).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize(("masked", "causal"), [(False, False), (True, False), (False, True)])
def test_products_are_torchs_own_attention(masked: bool, causal: bool) -> None:
    results, halves = [], []
    allowed = MASK[:, None, None] if masked else None
    for function in (attend_by_products, F.scaled_dot_product_attention):
        own = partial(function, attn_mask=allowed, is_causal=causal, dropout_p=0.0, scale=0.3)
        qkv = inputs(torch.float64)
        z = own(*(t.transpose(1, 2) for t in qkv))
        z.sin().sum().backward()
        results.append([z, *(t.grad for t in qkv)])
        halves.append(own(*(t.detach().bfloat16().transpose(1, 2) for t in qkv)))
    torch.testing.assert_close(*results, rtol=0, atol=1e-10)
    torch.testing.assert_close(*halves, rtol=0, atol=0.02)
