"""A tower: embeddings, layers, and the pooled token that a classifier or a projection reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.spec import Adapter, ImageEmbeddings, TowerSpec
from hydractl.model.adapters import Shapes, build_linear
from hydractl.model.attention import Heads
from hydractl.model.embeddings import PatchEmbeddings, TokenEmbeddings
from hydractl.model.layer import ACTIVATIONS, Layer, build_layer, norm
from hydractl.model.linear import Linear


class Place(NamedTuple):
    """Where the tokens stand that are pooled: the `leading` ones of each sample, or the one at `[B]` places."""

    leading: int
    at: Tensor | None = None

    def of(self, x: Tensor) -> Tensor:
        """The tokens `[G,B,1 or 2,D]` that stand there in `[G,B,T,D]`."""
        if self.at is None:
            return x[:, :, : self.leading]
        return x[:, torch.arange(self.at.shape[0], device=x.device), self.at, None]


class Tower(nn.Module):
    """An encoder and its pooled token."""

    def __init__(
        self,
        spec: TowerSpec,
        embeddings: PatchEmbeddings | TokenEmbeddings,
        layers: Iterable[Layer],
        norm: nn.Module,
        pooler: Linear | None,
        projection: Linear | None,
    ) -> None:
        super().__init__()
        self.spec, self.embeddings = spec, embeddings
        self.layers = cast("Sequence[Layer]", nn.ModuleList(layers))  # whose type does not say what it holds
        self.norm, self.pooler, self.projection = norm, pooler, projection

    def forward_image(self, pixel_values: Tensor) -> Tensor:
        """Pooled tokens `[G,B,D]` of images `[B,channels,height,width]`."""
        return self(self.embeddings(pixel_values), None, None)

    def forward_text(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Pooled tokens `[G,B,D]` of texts `[B,T]`; the mask is non-zero where a token counts."""
        mask = attention_mask.bool() if attention_mask is not None else None
        return self(self.embeddings(input_ids, token_type_ids), mask, input_ids)

    def forward(self, x: Tensor, mask: Tensor | None, input_ids: Tensor | None) -> Tensor:
        """Pooled tokens `[G,B,D]` of what the first layer reads, `[G,B,T,D]`; ids `[B,T]` where these are texts."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.pool(x, input_ids)

    def pool(self, x: Tensor, input_ids: Tensor | None) -> Tensor:
        """What is pooled `[G,B,D]` of a last hidden state, normed and through the pooler where there is one.

        Where two tokens are pooled they lie side by side, `[G,B,2*D]`.
        """
        if self.spec.norm_tokens:
            return self.finish(self._pooled(self.norm(x), input_ids))
        return self.finish(self.norm(self._pooled(x, input_ids)))

    def finish(self, tokens: Tensor) -> Tensor:
        """What is pooled `[G,B,D]` of normed tokens `[G,B,1 or 2,D]`: through the pooler, side by side."""
        if self.pooler is not None and self.spec.pooler is not None:
            tokens = ACTIVATIONS[self.spec.pooler](self.pooler(tokens))
        return tokens.flatten(2)

    def _pooled(self, x: Tensor, input_ids: Tensor | None) -> Tensor:
        """The one or two vectors that the classifier reads, `[G,B,1 or 2,D]`."""
        place, embeddings = self.place(input_ids), self.spec.embeddings
        if place is not None:
            return place.of(x)
        assert isinstance(embeddings, ImageEmbeddings)
        mean = x[:, :, embeddings.prefix :].mean(2, keepdim=True)
        return mean if self.spec.pool == "mean" else torch.cat([x[:, :, :1], mean], 2)

    def place(self, input_ids: Tensor | None) -> Place | None:
        """Where the pooled tokens stand, unless it takes all tokens."""
        pool, embeddings = self.spec.pool, self.spec.embeddings
        if pool in ("first", "first+second"):
            return Place(1 if pool == "first" else 2)
        if isinstance(embeddings, ImageEmbeddings):
            return None
        assert input_ids is not None
        eos = embeddings.eos
        return Place(1, input_ids.argmax(-1) if eos is None else (input_ids == eos).int().argmax(-1))


def build_tower(
    tower: TowerSpec, kept: KeptHeads, shared: frozenset[str], shapes: Shapes, adapter: Adapter | None = None
) -> Tower:
    """A tower, its parameters without numbers yet.

    Args:
        kept: the heads that each member keeps.
        shared: the tensors that members share.
        shapes: stored shape of every tensor name.
        adapter: what members change of maps that they share.
    """
    name = tower.name
    embeddings = PatchEmbeddings if isinstance(tower.embeddings, ImageEmbeddings) else TokenEmbeddings
    projection = shapes.get(f"{name}.projection.weight")
    return Tower(
        tower,
        embeddings(tower, shapes),
        [build_layer(tower, i, _stored_heads(tower, kept, shared, i), shapes, adapter) for i in range(tower.layers)],
        norm(tower, f"{name}.norm", shapes) if tower.final_norm else nn.Identity(),
        build_linear(f"{name}.pooler", shapes, adapter) if tower.pooler is not None else None,
        Linear(projection, None) if projection is not None else None,
    )


def _stored_heads(tower: TowerSpec, kept: KeptHeads, shared: frozenset[str], layer: int) -> Heads:
    members = kept[tower.name][layer]
    return members[:1] if f"{tower.name}.layers.{layer}.attention.q.weight" in shared else members
