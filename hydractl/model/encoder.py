"""A tower: embeddings, layers, and the pooled token that a classifier or a projection reads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.spec import ImageEmbeddings, TowerSpec
from hydractl.model.attention import Heads
from hydractl.model.embeddings import PatchEmbeddings, TokenEmbeddings
from hydractl.model.layer import ACTIVATIONS, Layer, Place, Shapes, norm
from hydractl.model.linear import Linear


class Tower(nn.Module):
    """An encoder and its pooled token."""

    embeddings: PatchEmbeddings | TokenEmbeddings

    def __init__(self, tower: TowerSpec, kept: KeptHeads, shared: frozenset[str], shapes: Shapes) -> None:
        super().__init__()
        self.spec, self.optimized = tower, False
        image = isinstance(tower.embeddings, ImageEmbeddings)
        self.embeddings = PatchEmbeddings(tower, shapes) if image else TokenEmbeddings(tower, shapes)
        self.layers = nn.ModuleList(
            Layer(tower, index, _stored_heads(tower, kept, shared, index), shapes) for index in range(tower.layers)
        )
        self.norm = norm(tower, f"{tower.name}.norm", shapes) if tower.final_norm else nn.Identity()
        self.pooler = (
            Linear(shapes[f"{tower.name}.pooler.weight"], shapes[f"{tower.name}.pooler.bias"])
            if tower.pooler is not None
            else None
        )

    def forward_image(self, pixel_values: Tensor) -> Tensor:
        """Pooled tokens `[G,B,D]` of images `[B,C,H,W]`."""
        return self._encode_and_pool(self.embeddings(pixel_values), None, None)

    def forward_text(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Pooled tokens `[G,B,D]` of texts `[B,T]`; the mask is non-zero where a token counts."""
        mask = attention_mask.bool() if attention_mask is not None else None
        return self._encode_and_pool(self.embeddings(input_ids, token_type_ids), mask, input_ids)

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
            return self._finish(self._pooled(self.norm(x), input_ids))
        return self._finish(self.norm(self._pooled(x, input_ids)))

    def optimize_for_inference(self, common: int | None) -> None:
        """Lays weights out for speed; from now on the last layer computes no token that is not pooled.

        Args:
            common: the layer in which members first differ while they still read the same hidden state, if any.
        """
        # A last layer that is read at one token keeps its weights as they are: it never projects keys or values.
        whole = self.layers if "mean" in self.spec.pool else self.layers[:-1]
        for index, layer in enumerate(whole):
            assert isinstance(layer, Layer)
            layer.pack(common=index == common)
        self.optimized = True

    def _encode_and_pool(self, x: Tensor, mask: Tensor | None, input_ids: Tensor | None) -> Tensor:
        place = self.place(input_ids)
        if not self.optimized or place is None:
            return self.pool(self.encode(x, mask), input_ids)
        *layers, last = self.layers
        for layer in layers:
            x = layer(x, mask)
        assert isinstance(last, Layer)
        return self.finish(last.forward_at(place, x, mask))

    def finish(self, tokens: Tensor) -> Tensor:
        """What is pooled `[G,B,F]` of the tokens `[G,B,P,D]` at the pooled place of a last hidden state."""
        # A norm works on each token alone, so only those pooled need it.
        return self._finish(self.norm(tokens))

    def _finish(self, pooled: Tensor) -> Tensor:
        if self.pooler is not None and self.spec.pooler is not None:
            pooled = ACTIVATIONS[self.spec.pooler](self.pooler(pooled))
        return pooled.flatten(2)

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


def _stored_heads(tower: TowerSpec, kept: KeptHeads, shared: frozenset[str], layer: int) -> Heads:
    members = kept[tower.name][layer]
    return members[:1] if f"{tower.name}.layers.{layer}.attention.q.weight" in shared else members
