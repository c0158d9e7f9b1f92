"""One encoder layer: attention and MLP around a hidden state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.checkpoint.spec import TowerSpec
from hydractl.model.attention import FusedAttention, Heads
from hydractl.model.linear import LayerNorm, Linear, empty
from hydractl.model.packed import PackedAttention
from hydractl.model.pooled import pooled_mix
from hydractl.model.product import activated_product

Shapes = Mapping[str, tuple[int, ...]]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_python": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * (1.702 * x).sigmoid(),
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": lambda x: x.tanh(),
}
#: The same, over its argument: in inference nothing needs the argument again, and a second buffer costs time to touch.
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": torch.ops.aten.gelu_,
    "gelu_python": torch.ops.aten.gelu_,
    "gelu_new": lambda x: torch.ops.aten.gelu_(x, approximate="tanh"),
    "gelu_fast": lambda x: torch.ops.aten.gelu_(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: torch.ops.aten.gelu_(x, approximate="tanh"),
    "quick_gelu": lambda x: x.mul_((1.702 * x).sigmoid_()),
    "relu": F.relu_,
    "silu": lambda x: F.silu(x, inplace=True),
    "swish": lambda x: F.silu(x, inplace=True),
    "tanh": torch.tanh_,
}


class Mlp(nn.Module):
    """Two linear maps with an activation between."""

    def __init__(self, tower: TowerSpec, prefix: str, shapes: Shapes) -> None:
        super().__init__()
        self.fc1 = Linear(shapes[f"{prefix}.fc1.weight"], shapes[f"{prefix}.fc1.bias"])
        self.fc2 = Linear(shapes[f"{prefix}.fc2.weight"], shapes[f"{prefix}.fc2.bias"])
        self.activation = tower.activation

    def forward(self, x: Tensor) -> Tensor:
        """`[G, ..., D]` to `[G, ..., D]`."""
        return self.fc2(self._activated(x))

    def _activated(self, x: Tensor) -> Tensor:
        if self.fc1.serves_all:
            fused = activated_product(x, self.fc1.weight, self.fc1.bias, self.activation)
            if fused is not None:
                return fused
        return (ACTIVATIONS if torch.is_grad_enabled() else IN_PLACE)[self.activation](self.fc1(x))


class Layer(nn.Module):
    """One encoder layer, pre-norm (ViT, CLIP) or post-norm (BERT)."""

    attention_scale: Tensor | None
    mlp_scale: Tensor | None

    def __init__(self, tower: TowerSpec, index: int, heads: Heads, shapes: Shapes) -> None:
        super().__init__()
        prefix = f"{tower.name}.layers.{index}"
        self.pre_norm = tower.pre_norm
        self.attention: FusedAttention | PackedAttention = FusedAttention(tower, f"{prefix}.attention", heads, shapes)
        self.attention_norm = norm(tower, f"{prefix}.attention_norm", shapes)
        self.mlp = Mlp(tower, f"{prefix}.mlp", shapes)
        self.mlp_norm = norm(tower, f"{prefix}.mlp_norm", shapes)
        self.dropout = nn.Dropout(tower.dropout)
        for name in ("attention_scale", "mlp_scale"):
            scale = empty(shapes[f"{prefix}.{name}"]) if tower.layer_scale else None
            self.register_parameter(name, scale)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`[G,B,T,D]` to `[G,B,T,D]`."""
        attended: Tensor = self.attention(self.attention_input(x), mask)
        return self.complete(x, attended)

    def pack(self, common: bool) -> None:
        """Lays the attention's weights out for inference; `common` as in `PackedAttention`."""
        assert isinstance(self.attention, FusedAttention)
        self.attention = PackedAttention(self.attention, common)

    def forward_at(self, place: Place, x: Tensor, mask: Tensor | None) -> Tensor:
        """`[G,B,T,D]` to `[G,B,P,D]`: this layer's result for the tokens at `place`, and only the work for those."""
        assert isinstance(self.attention, FusedAttention)
        return self.complete(place.of(x), self.attention.output(self.mix_at(place, x, mask)))

    def mix_at(self, place: Place, x: Tensor, mask: Tensor | None) -> Tensor:
        """What the heads see at `place`, `[S,B,P,R]`, of the hidden state `[G,B,T,D]`."""
        assert isinstance(self.attention, FusedAttention)
        read = self.attention_input(x)
        return pooled_mix(self.attention, read, place.of(read), place.visible(mask, self.attention.causal, x.shape[2]))

    def attention_input(self, x: Tensor) -> Tensor:
        """What this layer's attention reads of the hidden state."""
        return self.attention_norm(x) if self.pre_norm else x

    def complete(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's result, given the hidden state it started from and its attention output."""
        x = x + _scaled(self.dropout(attended), self.attention_scale)
        if self.pre_norm:
            x = x + _scaled(self.dropout(self.mlp(self.mlp_norm(x))), self.mlp_scale)
        else:
            x = self.attention_norm(x)
            x = self.mlp_norm(x + self.dropout(self.mlp(x)))
        return x


class Place(NamedTuple):
    """Where the tokens stand that are pooled: the `leading` ones of each sample, or the one at `[B]` places."""

    leading: int
    at: Tensor | None = None

    def of(self, x: Tensor) -> Tensor:
        """The tokens `[G,B,P,D]` that stand there in `[G,B,T,D]`."""
        if self.at is None:
            return x[:, :, : self.leading]
        return x[:, torch.arange(len(self.at), device=x.device), self.at, None]

    def visible(self, mask: Tensor | None, causal: bool, tokens: int) -> Tensor | None:
        """`[B,T]`, true where they may look; None means everywhere."""
        if not causal or self.at is None:
            return mask
        before = torch.arange(tokens, device=self.at.device) <= self.at[:, None]
        return before if mask is None else before & mask


def _scaled(x: Tensor, scale: Tensor | None) -> Tensor:
    return x if scale is None else x * scale.view(-1, 1, 1, scale.shape[-1])  # [G,1,1,D]


def norm(tower: TowerSpec, prefix: str, shapes: Shapes) -> LayerNorm:
    """The layer norm stored under a name."""
    return LayerNorm(shapes[f"{prefix}.weight"], shapes[f"{prefix}.bias"], tower.norm_eps)
