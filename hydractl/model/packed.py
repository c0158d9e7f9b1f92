"""Attention with its weights laid out for speed: what `FusedAttention` computes, in as few products as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from hydractl.errors import OptionError
from hydractl.model.attention import FusedAttention, attend, output_weights, project_output
from hydractl.model.product import grouped, product, side_by_side


class PackedAttention(nn.Module):
    """`FusedAttention` for inference: q, k and v in one product, one attention call over all members' heads.

    Rows of `qkv` are the heads' q, k and v in turn, `[S,3,K,D]`, members one after the other: any run of heads,
    of one member, of all, of an uneven few, is one slice, and no activation is ever rearranged. `out` holds each
    member's output weight `[D,R]` in one piece. Takes the place of the module it packs; the state dict still carries
    the file's names and shapes.
    """

    qkv_bias: Tensor | None
    order: Tensor | None

    def __init__(self, attention: FusedAttention, common: bool) -> None:
        """
        Args:
            attention: the layer's attention; its weights are copied and should be let go.
            common: whether all members read the same hidden state here, as in the first layer in which they differ.
        """
        super().__init__()
        self.head_width, self.causal = attention.head_width, attention.causal
        self.rows, self.common = attention.rows, common
        first = _first_alike(attention) if common else list(range(sum(self.rows) // self.head_width))
        distinct = sorted(set(first))
        with torch.no_grad():
            weights = [_by_head(part.weight, self.head_width) for part in (attention.q, attention.k, attention.v)]
            self.qkv = nn.Parameter(torch.stack(weights, 1)[distinct].flatten(0, 2), requires_grad=False)
            biases = [part.bias for part in (attention.q, attention.k, attention.v)]
            stacked = [_by_head(bias, self.head_width) for bias in biases if bias is not None]
            packed = torch.stack(stacked, 1)[distinct].flatten() if stacked else None
            by_member = output_weights(attention.o.weight, self.rows)
            self.out = nn.Parameter(torch.cat([weight.flatten() for weight in by_member]), requires_grad=False)
        self.register_parameter("qkv_bias", None if packed is None else nn.Parameter(packed, requires_grad=False))
        assert attention.o.bias is not None
        self.out_bias = nn.Parameter(attention.o.bias.detach(), requires_grad=False)
        shared = len(distinct) < len(first)
        places = torch.tensor([distinct.index(i) for i in first], device=self.qkv.device) if shared else None
        self.register_buffer("order", places, persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`[G,B,T,D]` to the layer's attention output `[G,B,T,D]`; mask `[B,T]` is true where a token counts."""
        if not sum(self.rows):
            return project_output(self._output_weights(), self.out_bias, x[..., :0])
        qkv = self._project(x)  # [S,B,T,R] with S of 1 for members side by side
        q, k, v = qkv.flatten(0, 1).unflatten(-1, (-1, 3, self.head_width)).unbind(-2)
        z = attend(q, k, v, mask, self.causal)  # [S*B,T,H,K]
        if self.order is not None:
            # Each member gets its own row of heads, those that several keep more than once.
            z = z[:, :, self.order]
        return project_output(self._output_weights(), self.out_bias, z.flatten(2).unflatten(0, (-1, x.shape[1])))

    def _output_weights(self) -> Sequence[Tensor] | Tensor:
        members, width = self.out_bias.shape
        if len(set(self.rows)) == 1:
            return self.out.view(members, width, self.rows[0])
        parts = self.out.split([width * rows for rows in self.rows])
        return [part.view(width, rows) for part, rows in zip(parts, self.rows, strict=True)]

    def _project(self, x: Tensor) -> Tensor:
        members = len(self.rows)
        if members == 1 or self.common:
            return product(x, self.qkv, self.qkv_bias)
        if len(set(self.rows)) == 1:
            bias = self.qkv_bias.unflatten(0, (members, -1)) if self.qkv_bias is not None else None
            return grouped(x.flatten(1, 2), self.qkv.unflatten(0, (members, -1)), bias).unflatten(1, x.shape[1:3])
        beside = side_by_side(x.flatten(1, 2), self.qkv, self.qkv_bias, [3 * count for count in self.rows])
        return beside.unflatten(0, x.shape[1:3])[None]

    def train(self, mode: bool = True) -> Self:
        """Refuses training: gradients of packed weights would miss the heads that members share.

        Raises:
            OptionError: `mode` is true.
        """
        if mode:
            raise OptionError("a model optimised for inference cannot be trained: load it again")
        super().train(False)
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        order = slice(None) if self.order is None else self.order
        weight = self.qkv.detach().unflatten(0, (-1, 3, self.head_width))[order]  # [S,3,K,D]
        for i, part in enumerate("qkv"):
            destination[f"{prefix}{part}.weight"] = weight[:, i].flatten(0, 1)
        if self.qkv_bias is not None:
            bias = self.qkv_bias.detach().unflatten(0, (-1, 3, self.head_width))[order]
            for i, part in enumerate("qkv"):
                destination[f"{prefix}{part}.bias"] = bias[:, i].flatten()
        destination[f"{prefix}o.weight"] = torch.cat(list(self._output_weights()), 1).detach()
        destination[f"{prefix}o.bias"] = self.out_bias.detach()


def _by_head(rows: Tensor, head_width: int) -> Tensor:
    return rows.detach().unflatten(0, (-1, head_width))


def _first_alike(attention: FusedAttention) -> list[int]:
    """For each head, members one after the other, the first one that computes the same: that head itself, if new."""
    numbers = [head for kept in attention.heads for head in kept]
    parts = [t for part in (attention.q, attention.k, attention.v) for t in (part.weight, part.bias) if t is not None]
    rows = [_by_head(part, attention.head_width) for part in parts]

    def alike(i: int, j: int) -> bool:
        return numbers[i] == numbers[j] and all(torch.equal(part[i], part[j]) for part in rows)

    return [next(j for j in range(i + 1) if alike(i, j)) for i in range(len(numbers))]
