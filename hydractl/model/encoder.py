"""A tower: embeddings, layers, and the pooled token that a classifier or a projection reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.spec import ImageEmbeddings, TowerSpec
from hydractl.model.attention import FusedAttention
from hydractl.model.embeddings import PatchEmbeddings, TokenEmbeddings
from hydractl.model.linear import LayerNorm, Linear, empty

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


class Mlp(nn.Module):
    """Two linear maps with an activation between."""

    def __init__(self, tower: TowerSpec, prefix: str, shapes: Shapes) -> None:
        super().__init__()
        self.fc1 = Linear(shapes[f"{prefix}.fc1.weight"], shapes[f"{prefix}.fc1.bias"])
        self.fc2 = Linear(shapes[f"{prefix}.fc2.weight"], shapes[f"{prefix}.fc2.bias"])
        self.activation = ACTIVATIONS[tower.activation]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc2(self.activation(self.fc1(x)))
        return y


class Layer(nn.Module):
    """One encoder layer, pre-norm (ViT, CLIP) or post-norm (BERT)."""

    attention_scale: Tensor | None
    mlp_scale: Tensor | None

    def __init__(self, tower: TowerSpec, index: int, counts: tuple[int, ...], shapes: Shapes) -> None:
        super().__init__()
        prefix = f"{tower.name}.layers.{index}"
        self.pre_norm = tower.pre_norm
        self.attention = FusedAttention(tower, f"{prefix}.attention", counts, shapes)
        self.attention_norm = _norm(tower, f"{prefix}.attention_norm", shapes)
        self.mlp = Mlp(tower, f"{prefix}.mlp", shapes)
        self.mlp_norm = _norm(tower, f"{prefix}.mlp_norm", shapes)
        self.dropout = nn.Dropout(tower.dropout)
        for name in ("attention_scale", "mlp_scale"):
            scale = empty(shapes[f"{prefix}.{name}"]) if tower.layer_scale else None
            self.register_parameter(name, scale)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`[G,B,T,D]` to `[G,B,T,D]`."""
        attended: Tensor = self.attention(self.attention_input(x), mask)
        return self.complete(x, attended)

    def attention_input(self, x: Tensor) -> Tensor:
        """What this layer's attention reads of the hidden state."""
        y: Tensor = self.attention_norm(x) if self.pre_norm else x
        return y

    def complete(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's result, given the hidden state it started from and its attention output."""
        x = x + _scaled(self.dropout(attended), self.attention_scale)
        if self.pre_norm:
            x = x + _scaled(self.dropout(self.mlp(self.mlp_norm(x))), self.mlp_scale)
        else:
            x = self.attention_norm(x)
            x = self.mlp_norm(x + self.dropout(self.mlp(x)))
        return x


def _scaled(x: Tensor, scale: Tensor | None) -> Tensor:
    return x if scale is None else x * scale.view(-1, 1, 1, scale.shape[-1])  # [G,1,1,D]


def _norm(tower: TowerSpec, prefix: str, shapes: Shapes) -> LayerNorm:
    return LayerNorm(shapes[f"{prefix}.weight"], shapes[f"{prefix}.bias"], tower.norm_eps)


class Tower(nn.Module):
    """An encoder and its pooled token."""

    embeddings: PatchEmbeddings | TokenEmbeddings

    def __init__(self, tower: TowerSpec, kept: KeptHeads, shared: frozenset[str], shapes: Shapes) -> None:
        super().__init__()
        self.spec = tower
        image = isinstance(tower.embeddings, ImageEmbeddings)
        self.embeddings = PatchEmbeddings(tower, shapes) if image else TokenEmbeddings(tower, shapes)
        self.layers = nn.ModuleList(
            Layer(tower, index, _counts(tower, kept, shared, index), shapes) for index in range(tower.layers)
        )
        self.norm = _norm(tower, f"{tower.name}.norm", shapes) if tower.final_norm else nn.Identity()
        self.pooler = (
            Linear(shapes[f"{tower.name}.pooler.weight"], shapes[f"{tower.name}.pooler.bias"])
            if tower.pooler is not None
            else None
        )

    def forward_image(self, pixel_values: Tensor) -> Tensor:
        """Pooled tokens `[G,B,D]` of images `[B,C,H,W]`."""
        return self.pool(self.encode(self.embeddings(pixel_values), None), None)

    def forward_text(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Pooled tokens `[G,B,D]` of texts `[B,T]`; the mask is non-zero where a token counts."""
        mask = attention_mask.bool() if attention_mask is not None else None
        return self.pool(self.encode(self.embeddings(input_ids, token_type_ids), mask), input_ids)

    def encode(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The hidden state after the last layer, `[G,B,T,D]`."""
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def pool(self, x: Tensor, input_ids: Tensor | None) -> Tensor:
        """What is pooled `[G,B,D]` of a last hidden state, normed and through the pooler where there is one.

        Where two tokens are pooled they lie side by side, `[G,B,2*D]`.
        """
        if self.spec.norm_tokens:
            pooled = self._pooled(self.norm(x), input_ids)
        else:  # a norm works on each token alone, so only those pooled need it
            pooled = self.norm(self._pooled(x, input_ids))
        if self.pooler is not None and self.spec.pooler is not None:
            pooled = ACTIVATIONS[self.spec.pooler](self.pooler(pooled))
        flat: Tensor = pooled.flatten(2)
        return flat

    def _pooled(self, x: Tensor, input_ids: Tensor | None) -> Tensor:
        """The one or two vectors that the classifier reads, `[G,B,1 or 2,D]`."""
        pool, embeddings = self.spec.pool, self.spec.embeddings
        if pool in ("first", "first+second"):
            return x[:, :, : 1 if pool == "first" else 2]
        if isinstance(embeddings, ImageEmbeddings):
            mean = x[:, :, embeddings.prefix :].mean(2, keepdim=True)
            return mean if pool == "mean" else torch.cat([x[:, :, :1], mean], 2)
        assert input_ids is not None
        eos = embeddings.eos
        place = input_ids.argmax(-1) if eos is None else (input_ids == eos).int().argmax(-1)  # [B]
        return x[:, torch.arange(len(place), device=x.device), place, None]


def _counts(tower: TowerSpec, kept: KeptHeads, shared: frozenset[str], layer: int) -> tuple[int, ...]:
    members = kept[tower.name][layer]
    stored = members[:1] if f"{tower.name}.layers.{layer}.attention.q.weight" in shared else members
    return tuple(len(heads) for heads in stored)
