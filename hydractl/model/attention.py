"""Attention of all members at once: the kept heads of every member side by side, without padding."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.checkpoint.spec import TowerSpec
from hydractl.model.linear import Linear


class FusedAttention(nn.Module):
    """Multi-head attention over the kept heads of M members ([HE] 4.2, grouped fully-connected layers).

    q, k, v weights are `[sum_m H_m*K, D]`, the output weight is `[D, sum_m H_m*K]`: members one after the other. A
    layer that all members share holds the rows of one.
    """

    def __init__(self, tower: TowerSpec, prefix: str, counts: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]):
        """
        Args:
            counts: kept heads of each member, or of one where members share the layer.
            shapes: stored shape of every tensor name.
        """
        super().__init__()
        self.head_width, self.causal = tower.head_width, tower.causal
        self.rows = tuple(count * tower.head_width for count in counts)
        self.q, self.k, self.v, self.o = (
            Linear(shapes[f"{prefix}.{part}.weight"], shapes.get(f"{prefix}.{part}.bias")) for part in "qkvo"
        )
        self.dropout = nn.Dropout(tower.attention_dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`[G,B,T,D]` to the layer's attention output `[G,B,T,D]`; mask `[B,T]` is true where a token counts."""
        return self.output(self.mix(x, mask))

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """What heads see, before the output projection: `[S,B,T,sum_m H_m*K]`.

        S is G where members share the layer, else 1 with the members' heads side by side.
        """
        q, k, v = self._project(self.q, x), self._project(self.k, x), self._project(self.v, x)  # [S,B,T,R]
        if q.shape[-1] == 0:
            return q
        q, k, v = (t.flatten(0, 1).unflatten(-1, (-1, self.head_width)).transpose(1, 2) for t in (q, k, v))
        z = F.scaled_dot_product_attention(  # [S*B,H,T,K]
            q,
            k,
            v,
            attn_mask=self._mask(mask, copies=q.shape[0] // x.shape[1], tokens=q.shape[2]),
            is_causal=self.causal and mask is None,
            dropout_p=self.dropout.p if self.training else 0.0,
        )
        mixed: Tensor = z.transpose(1, 2).flatten(2).unflatten(0, (-1, x.shape[1]))
        return mixed

    def output(self, z: Tensor) -> Tensor:
        """Sums the heads' contributions: `[S,B,T,R]` to `[G,B,T,D]`, output bias included."""
        bias = self.o.bias
        assert bias is not None
        if len(self.rows) == 1:
            return F.linear(z, self.o.weight, bias[0])
        parts = zip(z[0].split(self.rows, -1), self.o.weight.split(self.rows, 1), bias, strict=True)
        # The output bias belongs to the layer, not to a head: it stays when every head of a member is gone.
        return torch.stack([F.linear(*part) for part in parts])

    def _project(self, linear: Linear, x: Tensor) -> Tensor:
        if len(self.rows) == 1 or x.shape[0] == 1:
            # One product serves all: either one set of heads for every member, or one input for all heads.
            return F.linear(x, linear.weight, linear.bias)
        weights = linear.weight.split(self.rows)
        biases = linear.bias.split(self.rows) if linear.bias is not None else [None] * len(weights)
        return torch.cat([F.linear(*part) for part in zip(x, weights, biases, strict=True)], -1)[None]

    def _mask(self, mask: Tensor | None, copies: int, tokens: int) -> Tensor | None:
        if mask is None:
            return None
        allowed = mask[:, None, None, :]  # [B,1,1,T]
        if self.causal:
            allowed = allowed & torch.ones(tokens, tokens, dtype=torch.bool, device=mask.device).tril()
        return allowed.repeat(copies, 1, 1, 1) if copies > 1 else allowed
