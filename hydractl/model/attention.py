"""Attention of all members at once: the kept heads of every member side by side, without padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.checkpoint.spec import TowerSpec
from hydractl.model.linear import Linear
from hydractl.model.product import grouped, one_above_another, product, side_by_side

Heads = tuple[tuple[int, ...], ...]


class FusedAttention(nn.Module):
    """Multi-head attention over the kept heads of M members ([HE] 4.2, grouped fully-connected layers).

    q, k, v weights are `[sum_m H_m*K, D]`, the output weight is `[D, sum_m H_m*K]`: members one after the other. A
    layer that all members share holds the rows of one.
    """

    def __init__(self, tower: TowerSpec, prefix: str, heads: Heads, shapes: Mapping[str, tuple[int, ...]]):
        """
        Args:
            heads: kept heads of each member, or of one where members share the layer.
            shapes: stored shape of every tensor name.
        """
        super().__init__()
        self.head_width, self.causal, self.heads = tower.head_width, tower.causal, heads
        self.rows = tuple(len(kept) * tower.head_width for kept in heads)
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
        q, k, v = (t.flatten(0, 1).unflatten(-1, (-1, self.head_width)) for t in (q, k, v))  # [S*B,T,H,K]
        z = attend(q, k, v, mask, self.causal, self.dropout.p if self.training else 0.0)
        return z.flatten(2).unflatten(0, (-1, x.shape[1]))

    def output(self, z: Tensor) -> Tensor:
        """Sums the heads' contributions: `[S,B,T,R]` to `[G,B,T,D]`, output bias included."""
        assert self.o.bias is not None
        return project_output(output_weights(self.o.weight, self.rows), self.o.bias, z)

    def _project(self, linear: Linear, x: Tensor) -> Tensor:
        if len(self.rows) == 1 or x.shape[0] == 1:
            # One product serves all: either one set of heads for every member, or one input for all heads.
            return product(x, linear.weight, linear.bias)
        beside = side_by_side(x.flatten(1, 2), linear.weight, linear.bias, list(self.rows))
        return beside.unflatten(0, x.shape[1:3])[None]


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float = 0.0) -> Tensor:
    """What heads see, `[S*B,T,H,K]` from three of that shape; mask `[B,T]` is true where a token counts."""
    z = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=_allowed(mask, causal, copies=q.shape[0] // mask.shape[0]) if mask is not None else None,
        is_causal=causal and mask is None,
        dropout_p=dropout,
    )
    return z.transpose(1, 2)


def _allowed(mask: Tensor, causal: bool, copies: int) -> Tensor:
    allowed = mask[:, None, None, :]  # [B,1,1,T]
    if causal:
        tokens = mask.shape[1]
        allowed = allowed & torch.ones(tokens, tokens, dtype=torch.bool, device=mask.device).tril()
    return allowed.repeat(copies, 1, 1, 1) if copies > 1 else allowed


def project_output(weights: Sequence[Tensor] | Tensor, bias: Tensor, z: Tensor) -> Tensor:
    """`[G,B,T,D]` of what heads see: `[S,B,T,R]`, members' heads side by side (S is 1) or apart (S is M).

    Args:
        weights: each member's `[D,R]`, as one tensor `[M,D,R]` where members are even.
        bias: `[M,D]`. It belongs to the layer, not to a head: it stays when every head of a member is gone.
    """
    members, shape = len(weights), z.shape[1:3]
    if not z.shape[-1]:
        return bias[:, None, None].expand(-1, *shape, -1)
    if members == 1:
        return product(z, weights[0], bias[0])
    if isinstance(weights, Tensor):
        own = z if len(z) > 1 else z[0].unflatten(-1, (members, -1)).movedim(2, 0)  # [M,B,T,R]
        return grouped(own.flatten(1, 2), weights, bias).unflatten(1, shape)
    return one_above_another(z[0].flatten(0, 1), weights, bias).unflatten(1, shape)


def output_weights(weight: Tensor, rows: tuple[int, ...]) -> Sequence[Tensor] | Tensor:
    """Views of the output weight `[D, sum_m R_m]` by member, as `project_output` takes them."""
    if len(set(rows)) == 1:
        return weight.unflatten(1, (len(rows), rows[0])).movedim(1, 0)
    return weight.split(rows, 1)
