"""A model made fast for inference: parts of it are replaced by faster ones, here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Self, cast

import torch
from torch import Tensor, nn

from hydractl.checkpoint.contents import common_layer
from hydractl.checkpoint.layout import Layout
from hydractl.checkpoint.spec import ModelSpec
from hydractl.errors import OptionError
from hydractl.model.attention import FusedAttention
from hydractl.model.encoder import Hidden, Layer, Place, Tower, scaled
from hydractl.model.fast.packing import PackedAttention
from hydractl.model.fast.pooled import PooledAttention
from hydractl.model.fast.products import FastLinear, FastMemberMlp, FastMlp, fast_mlp
from hydractl.model.linear import Linear


def optimize(model: nn.Module, spec: ModelSpec, layout: Layout) -> None:
    """Replaces a model's parts by fast ones: the same answers up to rounding, but no gradients and no training.

    Attention is one product for q, k and v and one call over all members' heads; in the first layer in which members
    differ, a head that several keep alike is computed once; the last layer computes the pooled tokens only. Products
    are those of the fastest library, activations overwrite their argument. A model that is fast already stays as it is.
    """
    for tower in spec.towers:
        module = cast(Tower, model.get_submodule(tower.name))
        if not isinstance(module, FastTower):
            common = common_layer(spec, layout, tower.name)
            model.add_module(tower.name, FastTower(module, common))
    for name, child in model.named_children():
        if isinstance(child, Linear):
            model.add_module(name, FastLinear(child))
    model.eval().requires_grad_(False)


def use_fast_products(model: nn.Module, spec: ModelSpec) -> None:
    """Replaces a model's products by fast ones and leaves the rest, dropout among it; no gradients from now on."""
    for tower in spec.towers:
        for layer in cast(Tower, model.get_submodule(tower.name)).layers:
            layer.mlp = fast_mlp(layer.mlp)
            for part in ("q", "k", "v"):
                layer.attention.add_module(part, FastLinear(cast(Linear, layer.attention.get_submodule(part))))
    model.requires_grad_(False)


class FastTower(Tower):
    """A tower of fast layers, the last of which computes only the pooled tokens."""

    layers: Sequence[FastLayer]

    def __init__(self, tower: Tower, common: int | None = None) -> None:
        """
        Args:
            tower: its parameters are used, or copied where they are laid out anew; it stays as it is.
            common: the layer where members first differ while they still read the same hidden state, if any.
        """
        # A pool of all tokens needs all of the last layer, too.
        last = len(tower.layers) - 1 if tower.spec.tokens_read else None
        nn.Module.__init__(self)
        self.spec, self.embeddings = tower.spec, tower.embeddings
        layers = [FastLayer(layer, pooled=i == last, common=i == common) for i, layer in enumerate(tower.layers)]
        self.layers = cast("Sequence[FastLayer]", nn.ModuleList(layers))
        self.norm = tower.norm
        self.pooler = FastLinear(tower.pooler) if tower.pooler is not None else None
        self.pooler_norm, self.attention_pool = tower.pooler_norm, tower.attention_pool
        self.projection = FastLinear(tower.projection) if tower.projection is not None else None
        self.eval()

    @torch.no_grad()
    def forward(self, x: Tensor, mask: Tensor | None, input_ids: Tensor | None, hidden: Hidden | None = None) -> Tensor:
        """Computes the same as a tower of plain layers, without gradients."""
        place = self.place(input_ids)
        return self.pool_at(place, self.encode_at(place, x, mask, hidden=hidden), mask)

    def encode_at(
        self, place: Place | None, x: Tensor, mask: Tensor | None, start: int = 0, hidden: Hidden | None = None
    ) -> Tensor:
        """Returns the last hidden state at the pooled tokens, `[G,B,1 or 2,D]`; at all, `[G,B,T,D]`, without `place`.

        Args:
            x: what layer `start` reads.
            hidden: as in `Tower.forward`.
        """
        for layer in islice(self.layers, start, None):
            z, x = layer.mix_at(place, x, mask)
            x = layer.advance(x, z)
            self.note(hidden, x, mask)
        return x

    def pool_at(self, place: Place | None, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pools the result of `encode_at`, `[G,B,D]`."""
        return self.pool(x, None, mask) if place is None else self.finish(self.norm(x))

    def train(self, mode: bool = True) -> Self:
        """Refuses training: there are no gradients.

        Raises:
            OptionError: `mode` is true.
        """
        if mode:
            raise OptionError("a model optimised for inference cannot be trained: load it again")
        return super().train(False)


class FastLayer(Layer):
    """A layer with its attention's weights laid out for speed."""

    attention: PackedAttention | PooledAttention
    mlp: FastMlp | FastMemberMlp

    def __init__(
        self, layer: Layer, pooled: bool, common: bool = False, attention: FusedAttention | None = None
    ) -> None:
        """
        Args:
            layer: stays as it is.
            pooled: whether only pooled tokens are computed.
            common: as in `PackedAttention`.
            attention: replaces the layer's own.
        """
        nn.Module.__init__(self)
        self.pre_norm, self.pooled = layer.pre_norm, pooled
        fused = attention or cast(FusedAttention, layer.attention)
        # The scores of pooled tokens alone would have to know where these stand.
        plain = fused.positions.is_plain and fused.q_norm is None
        self.attention = PooledAttention(fused) if pooled and plain else PackedAttention(fused, common)
        self.attention_norm, self.mlp, self.mlp_norm = layer.attention_norm, fast_mlp(layer.mlp), layer.mlp_norm
        self.adds = layer.attention_scale is None
        self.register_parameter("attention_scale", layer.attention_scale)
        self.register_parameter("mlp_scale", layer.mlp_scale)

    def mix_at(self, place: Place | None, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the heads' outputs `[S,B,T,R]` and the hidden state `[G,B,T,D]` of the same tokens.

        Those are all tokens, or in the last layer of a tower with a `place` the tokens that stand there.
        """
        read, attention = self.attention_input(x), self.attention
        if isinstance(attention, PooledAttention):
            assert place is not None
            return attention.mix(read, mask, place), place.of(x)
        z = attention.mix(read, mask)
        return (place.of(z), place.of(x)) if self.pooled and place is not None else (z, x)

    def advance(self, x: Tensor, z: Tensor) -> Tensor:
        """Returns the layer's result, given the hidden state it started from and the heads' outputs."""
        if not self.adds or not isinstance(self.attention, PackedAttention):
            return self.complete(x, self.attention.output(z))
        x = self.attention.add_output(x, z)
        if self.pre_norm:
            return self.mlp.add_to(x, self.mlp_norm(x))
        x = self.attention_norm(x)
        return cast(Tensor, self.mlp_norm(self.mlp.add_to(x, x)))

    def complete(self, x: Tensor, attended: Tensor) -> Tensor:
        """Returns the layer's result as `Layer` does, without dropout."""
        x = x + scaled(attended, self.attention_scale)
        if self.pre_norm:
            return x + scaled(self.mlp(self.mlp_norm(x)), self.mlp_scale)
        x = self.attention_norm(x)
        return self.mlp_norm(x + self.mlp(x))
