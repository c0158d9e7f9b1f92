"""One encoder layer: attention and MLP around a hidden state."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.checkpoint.spec import Adapter, TowerSpec
from hydractl.model.adapters import KeptFeatures, Shapes, build_linear
from hydractl.model.attention import FusedAttention, Heads
from hydractl.model.linear import LayerNorm, Linear, empty

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


class Mlp(nn.Module):
    """Two linear maps with an activation between."""

    def __init__(self, tower: TowerSpec, prefix: str, shapes: Shapes, adapter: Adapter | None = None) -> None:
        super().__init__()
        self.fc1: Linear = build_linear(f"{prefix}.fc1", shapes, adapter)
        self.fc2: Linear = build_linear(f"{prefix}.fc2", shapes, adapter)
        self.activation = tower.activation

    def forward(self, x: Tensor) -> Tensor:
        """`[G,...,D]` to `[G,...,D]`."""
        made = self.fc2.features(self.fc1, x) if isinstance(self.fc2, KeptFeatures) else self.fc1(x)
        return self.fc2(ACTIVATIONS[self.activation](made))


class Layer(nn.Module):
    """One encoder layer, pre-norm (ViT, CLIP) or post-norm (BERT)."""

    attention_scale: nn.Parameter | None
    mlp_scale: nn.Parameter | None

    def __init__(
        self,
        pre_norm: bool,
        attention: nn.Module,
        attention_norm: nn.Module,
        mlp: Mlp,
        mlp_norm: nn.Module,
        dropout: nn.Module,
        attention_scale: nn.Parameter | None = None,
        mlp_scale: nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        self.pre_norm, self.dropout = pre_norm, dropout
        self.attention, self.attention_norm = attention, attention_norm
        self.mlp, self.mlp_norm = mlp, mlp_norm
        self.register_parameter("attention_scale", attention_scale)
        self.register_parameter("mlp_scale", mlp_scale)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`[G,B,T,D]` to `[G,B,T,D]`."""
        return self.complete(x, self.attention(self.attention_input(x), mask))

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


def build_layer(tower: TowerSpec, index: int, heads: Heads, shapes: Shapes, adapter: Adapter | None = None) -> Layer:
    """A tower's layer, its parameters without numbers yet.

    Args:
        heads: kept heads of each member, or of one where members share the layer.
        shapes: stored shape of every tensor name.
        adapter: what members change of maps that they share.
    """
    prefix = f"{tower.name}.layers.{index}"
    scales = [empty(shapes[f"{prefix}.{name}_scale"]) if tower.layer_scale else None for name in ("attention", "mlp")]
    return Layer(
        tower.pre_norm,
        FusedAttention(tower, f"{prefix}.attention", heads, shapes, adapter),
        norm(tower, f"{prefix}.attention_norm", shapes),
        Mlp(tower, f"{prefix}.mlp", shapes, adapter),
        norm(tower, f"{prefix}.mlp_norm", shapes),
        nn.Dropout(tower.dropout),
        *scales,
    )


def _scaled(x: Tensor, scale: Tensor | None) -> Tensor:
    return x if scale is None else x * scale.view(-1, 1, 1, scale.shape[-1])  # [G,1,1,D]


def norm(tower: TowerSpec, prefix: str, shapes: Shapes) -> LayerNorm:
    """The layer norm stored under a name."""
    return LayerNorm(shapes[f"{prefix}.weight"], shapes[f"{prefix}.bias"], tower.norm_eps)
