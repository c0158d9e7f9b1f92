"""Attention equal to `FusedAttention`, in fewer multiply-adds, products and copies."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hydractl.model.attention import FusedAttention, attend_turned, with_normed_heads
from hydractl.model.fast.products import (
    Each,
    better_one_by_one,
    grouped,
    into_places,
    members_arguments,
    members_side_by_side,
    one_above_another,
    product,
)
from hydractl.model.linear import Linear
from hydractl.model.positions import Terms


class PackedAttention(nn.Module):
    """Attention with q, k and v in one product and one attention call over all members' heads.

    Rows of `qkv` are the heads' q, k and v in turn, `[H,3,K,D]`, members one after the other: any run of heads,
    of one member, of all, of an uneven few, is one slice, and no activation is ever rearranged. `out` holds each
    member's output weight `[D,H_m*K]` in one piece. Weights and biases lie in the shapes that products take. The
    state dict carries the names and shapes of the file.
    """

    qkv_bias: Tensor | None
    out_bias: Tensor | None
    relative: nn.Parameter | None
    numbers: Tensor | None
    keys: Tensor | None
    queries: Tensor | None
    norms: Tensor | None
    order: Tensor | None

    def __init__(self, attention: FusedAttention, common: bool = False) -> None:
        """
        Args:
            attention: the layer's attention; its weights are copied and should be let go.
            common: whether all members read the same hidden state here, as in the first layer where they differ.
                A head that several of them keep is then computed once.
        """
        super().__init__()
        self.head_width, self.positions = attention.head_width, attention.positions
        self.rows, self.common = attention.rows, common
        first = _first_alike(attention) if common else list(range(sum(self.rows) // self.head_width))
        distinct = sorted(set(first))
        members, self.even = len(self.rows), len(set(self.rows)) == 1
        self.alone = members == 1 and len(first) > 0
        # Even members are computed apart, unless they read the same hidden state.
        self.apart = self.even and members > 1 and not common
        groups, self.width = members if self.apart else 1, len(attention.o.weight)
        # Heads that `_project` computes side by side, and numbers that `mix` returns of a token.
        self.heads, self.mixed = len(distinct) // groups, sum(self.rows) // groups
        parts = (attention.q, attention.k, attention.v)
        self.biased = [name for name, part in zip("qkv", parts, strict=True) if part.bias is not None]
        weights = [_by_head(part.weight, self.head_width) for part in parts]
        biases = [_by_head(_bias(part), self.head_width) for part in parts if self.biased]
        by_member = output_weights_of(attention.o.weight.detach(), self.rows)
        rows = (groups, 3 * self.heads * self.head_width) if self.apart else (3 * self.heads * self.head_width,)
        self.qkv = _frozen(torch.stack(weights, 1)[distinct].view(*rows, self.width))
        self.register_parameter("qkv_bias", _frozen(torch.stack(biases, 1)[distinct].view(rows)) if biases else None)
        out = torch.stack(list(by_member)) if self.even else torch.cat([weight.flatten() for weight in by_member])
        self.out = _frozen(out[0] if self.alone else out)
        bias = attention.o.bias.detach() if attention.o.bias is not None else None
        self.register_parameter("out_bias", None if bias is None else _frozen(bias[0] if self.alone else bias))
        self._keep_terms(attention, distinct)
        changes = (self.numbers, self.keys, self.queries, self.norms, self.positions.rotary)
        self.plain = all(change is None for change in changes)
        shared = len(distinct) < len(first)
        places = torch.tensor([distinct.index(i) for i in first], device=self.qkv.device) if shared else None
        self.register_buffer("order", places, persistent=False)

    def _keep_terms(self, attention: FusedAttention, distinct: Sequence[int]) -> None:
        """Computes once what queries, keys and scores gain, and keeps what it depends on for the state dict."""
        self.register_parameter("relative", attention.relative)
        for name, child in attention.named_children():
            if name.startswith(("distance_", "q_norm", "k_norm")):
                self.add_module(name, child)
        with torch.no_grad():
            terms, norms = attention.terms() or Terms(), attention.head_norms()
        groups = len(self.rows) if self.apart else 1
        kept = terms.each(lambda t: t[:, distinct] if groups == 1 else t[0].unflatten(0, (groups, -1)))
        if norms is not None:
            norms = norms[:, :, distinct] if groups == 1 else norms[:, 0].unflatten(1, (groups, -1))
        self.register_buffer("norms", norms, persistent=False)
        self.eps = 0.0 if attention.q_norm is None else attention.q_norm.eps
        for name in ("numbers", "keys", "queries"):
            self.register_buffer(name, getattr(kept, name), persistent=False)

    @property
    def output_weights(self) -> Each:
        """Each member's `[D,H_m*K]`, as one tensor `[M,D,H_m*K]` if members are even."""
        if self.even:
            return self.out[None] if self.alone else self.out
        width = self.width
        parts = self.out.split_with_sizes([width * rows for rows in self.rows])
        return [part.view(width, rows) for part, rows in zip(parts, self.rows, strict=True)]

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Maps `[G,B,T,D]` to the layer's attention output `[G,B,T,D]`; mask `[B,T]` is true where a token counts."""
        return self.output(self.mix(x, mask))

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Computes the heads' outputs `[S,B,T,R]`; S is G if members share the layer, else 1."""
        if not self.mixed:
            return x[..., :0]
        _, batch, tokens, _ = x.shape
        if self.plain and not self.common and self._one_by_one(x, self.qkv):
            # Attention reads each member's product where it lies; only the outputs, a third as large, are copied.
            members = members_arguments(x.expand(len(self.rows), -1, -1, -1), *self._by_member())
            attended = [self._attended(product(*member), mask) for member in members]
            return torch.stack(attended) if self.apart else torch.cat(attended, -1)[None]
        qkv = self._project(x)  # rows are S*B*T, of heads computed once R counts one
        if self.plain:
            return self._attended(qkv.view(-1, tokens, qkv.shape[-1]), mask).view(-1, batch, tokens, self.mixed)
        q, k, v, terms = self._placed(qkv.view(-1, batch, tokens, self.heads, 3, self.head_width))
        return self._ordered(attend_turned((q, k, v), mask, self.positions, terms)).view(-1, batch, tokens, self.mixed)

    def _one_by_one(self, x: Tensor, weight: Tensor) -> bool:
        """Tells whether members are computed in turn; those with as many heads may be quicker together."""
        return len(self.rows) > 1 and into_places(x) and (not self.even or better_one_by_one(x, weight))

    def _attended(self, qkv: Tensor, mask: Tensor | None) -> Tensor:
        """Computes the outputs `[S*B,T,H*K]` of heads whose queries, keys and values are `[S*B,T,H*3*K]`."""
        if not qkv.shape[-1]:
            return qkv
        q, k, v = qkv.unflatten(-1, (-1, 3, self.head_width)).permute(3, 0, 2, 1, 4).unbind()  # [S*B,H,T,K] each
        return self._ordered(attend_turned((q, k, v), mask, self.positions))

    def _ordered(self, z: Tensor) -> Tensor:
        """Puts heads' outputs `[S*B,T,H,K]` side by side, each member's in a row: those that several keep repeat."""
        return (z if self.order is None else z[:, :, self.order]).flatten(2)

    def _placed(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor, Terms | None]:
        """Returns normalised, rotated q, k, v `[S*B,H,T,K]` of `[S,B,T,H,3,K]`, and terms added to scores."""
        terms = Terms(self.numbers, self.keys, self.queries)
        if terms.all and len(qkv) < (copies := len(terms.all[0])):
            qkv = qkv.expand(copies, *qkv.shape[1:])
        apart = qkv.flatten(0, 1)
        if self.norms is None:
            q, k = self.positions.turn(apart[..., :2, :]).unbind(-2)
        else:
            q, k = with_normed_heads(apart[..., 0, :], apart[..., 1, :], self.norms, self.eps)
            q, k = self.positions.turn(q), self.positions.turn(k)
        return q.transpose(1, 2), k.transpose(1, 2), apart[..., 2, :].transpose(1, 2), terms if terms.all else None

    def output(self, z: Tensor) -> Tensor:
        """Sums the heads' contributions: `[S,B,T,R]` to `[G,B,T,D]`, output bias included."""
        if self.alone:
            return product(z, self.out, self.out_bias)
        return project_output(self.output_weights, self.out_bias, z)

    def add_output(self, x: Tensor, z: Tensor) -> Tensor:
        """Computes `x + output(z)` in a new tensor, without a copy of the output."""
        if not z.shape[-1] or not self._one_by_one(z, self.out):
            return x + self.output(z)
        y = x.new_empty(len(self.rows), *x.shape[1:])
        members = members_arguments(z if len(z) > 1 else z[0].split(self.rows, -1), self.output_weights, self.out_bias)
        for place, before, member in zip(y, x.expand_as(y), members, strict=True):
            torch.add(before, product(*member), out=place)
        return y

    def _project(self, x: Tensor) -> Tensor:
        weight, bias = self.qkv, self.qkv_bias
        if self.alone or self.common:
            return product(x, weight, bias)
        if self.apart:
            return grouped(x.flatten(1, 2), weight, bias)
        return members_side_by_side(x.flatten(1, 2), *self._by_member())

    def _by_member(self) -> tuple[Each, Each | None]:
        """Returns weights and biases of queries, keys and values by member."""
        weight, bias = self.qkv, self.qkv_bias
        if self.apart:
            return weight, bias
        outputs = [3 * rows for rows in self.rows]
        return weight.split_with_sizes(outputs), bias.split_with_sizes(outputs) if bias is not None else None

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        order = slice(None) if self.order is None else self.order
        weight = self.qkv.view(-1, 3, self.head_width, self.width)[order]  # [H,3,K,D]
        for i, part in enumerate("qkv"):
            destination[f"{prefix}{part}.weight"] = weight[:, i].flatten(0, 1)
        if self.qkv_bias is not None:
            bias = self.qkv_bias.view(-1, 3, self.head_width)[order]
            for i, part in enumerate("qkv"):
                if part not in self.biased:
                    continue
                destination[f"{prefix}{part}.bias"] = bias[:, i].flatten()
        destination[f"{prefix}o.weight"] = torch.cat(list(self.output_weights), 1)
        if self.relative is not None:
            destination[f"{prefix}relative"] = self.relative.detach()
        if self.out_bias is not None:
            destination[f"{prefix}o.bias"] = self.out_bias.detach().view(len(self.rows), -1)


def project_output(weights: Each, bias: Tensor | None, z: Tensor) -> Tensor:
    """Maps heads' outputs `[S,B,T,R]`, members side by side (S = 1) or apart (S = M), to `[G,B,T,D]`."""
    members, shape = len(weights), z.shape[1:3]
    if not z.shape[-1]:
        nothing = z.new_zeros(members, len(weights[0])) if bias is None else bias
        return nothing[:, None, None].expand(-1, *shape, -1)
    if members == 1:
        return product(z, weights[0], None if bias is None else bias[0])
    if isinstance(weights, Tensor):
        by_member = z if z.shape[0] > 1 else z[0].unflatten(-1, (members, -1)).movedim(2, 0)  # [M,B,T,H_m*K]
        return grouped(by_member.flatten(1, 2), weights, bias).reshape(members, *shape, weights.shape[1])
    parts = z[0].flatten(0, 1).split_with_sizes([weight.shape[1] for weight in weights], -1)
    return one_above_another(parts, weights, bias).unflatten(1, shape)


def output_weights_of(weight: Tensor, rows: tuple[int, ...]) -> Each:
    """Returns views of the output weight `[D,R]` by member."""
    if len(set(rows)) == 1:
        return weight.unflatten(1, (len(rows), rows[0])).movedim(1, 0)
    return weight.split(rows, 1)


def _bias(linear: Linear) -> Tensor:
    return linear.weight.new_zeros(len(linear.weight)) if linear.bias is None else linear.bias


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


def _by_head(rows: Tensor, head_width: int) -> Tensor:
    return rows.detach().unflatten(0, (-1, head_width))


def _first_alike(attention: FusedAttention) -> list[int]:
    """Returns for each head, members one after the other, the first head that computes the same, perhaps itself."""
    numbers = [head for kept in attention.heads for head in kept]
    parts = [t for part in (attention.q, attention.k, attention.v) for t in (part.weight, part.bias) if t is not None]
    rows = [_by_head(part, attention.head_width) for part in parts]
    rows += [] if (norms := attention.head_norms()) is None else list(norms[:, 0])
    rows += [] if (terms := attention.terms()) is None else [term[0] for term in terms.all]

    def alike(i: int, j: int) -> bool:
        return numbers[i] == numbers[j] and all(torch.equal(part[i], part[j]) for part in rows)

    return [next(j for j in range(i + 1) if alike(i, j)) for i in range(len(numbers))]
