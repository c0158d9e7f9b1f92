"""Matrix products of replayed layers, by the fastest library there is for them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hydractl.model.attention import attend
from hydractl.model.encoder import Tower
from hydractl.model.linear import Linear
from hydractl.model.packed import PackedAttention
from hydractl.scoring.observe import attention_of, layers_of

# On a CPU torch multiplies float32 by MKL, which keeps its widest instructions for its maker's processors; oneDNN, in
# torch as well, does not. Measured on an EPYC with AVX-512, 788 rows, 768 by 3072: 53 and 111 G multiply-adds a
# second. The operator is the one that torch.compile puts in the place of such products.
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x W^T + b` of `[...,in]` and `[out,in]`, equal to torch's own up to rounding; without gradients."""
    if ONEDNN and x.dtype == torch.float32 and x.device.type == "cpu" and x.numel():
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return y
    return F.linear(x, weight, bias)


class FastLinear(Linear):
    """A linear map that all members share, for inference; the weights stay where they are."""

    def __init__(self, linear: Linear) -> None:
        super().__init__(tuple(linear.weight.shape), None)
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """`[...,in]` to `[...,out]`."""
        return product(x, self.weight, self.bias)


class FastAttention(PackedAttention):
    """The attention of one member, for inference."""

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`[G,B,T,D]` to the layer's attention output `[G,B,T,D]`; mask `[B,T]` is true where a token counts."""
        if not sum(self.rows):
            return super().forward(x, mask)
        qkv = product(x, self.qkv, self.qkv_bias)
        q, k, v = qkv.flatten(0, 1).unflatten(-1, (-1, 3, self.head_width)).unbind(-2)
        z = attend(q, k, v, mask, self.causal).flatten(2).unflatten(0, x.shape[:2])
        assert self.o.bias is not None
        return product(z, self.o.weight, self.o.bias[0])


def fast_layers(tower: Tower) -> list[FastAttention]:
    """Lays out the layers of a tower for speed: their MLPs in place, their attentions apart, as both are needed."""
    for layer in layers_of(tower):
        layer.mlp.fc1, layer.mlp.fc2 = FastLinear(layer.mlp.fc1), FastLinear(layer.mlp.fc2)
    return [FastAttention(attention_of(layer), common=False) for layer in layers_of(tower)]
