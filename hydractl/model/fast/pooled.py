"""Attention equal to `FusedAttention`, for pooled tokens only."""

from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.model.attention import FusedAttention, repeated
from hydractl.model.encoder import Place
from hydractl.model.fast.packing import output_weights_of, project_output
from hydractl.model.fast.products import Each, grouped
from hydractl.model.positions import Positions


class PooledAttention(nn.Module):
    """Attention for the one or two tokens of a sample that are pooled, without keys or values of all tokens.

    A head's scores are those of the query `W_k^T q` against x itself, and its output is `W_v` of the same mean of x:
    about K times fewer multiply-adds, which pays from two tokens on. The key bias adds one number to all scores of a
    query and cancels in the softmax; the value bias passes, as weights there add up to one. Exact up to rounding.
    """

    def __init__(self, attention: FusedAttention) -> None:
        super().__init__()
        self.head_width, self.positions, self.rows = attention.head_width, attention.positions, attention.rows
        self.q, self.k, self.v, self.o = attention.q, attention.k, attention.v, attention.o

    @property
    def output_weights(self) -> Each:
        """Each member's `[D,H_m*K]`, as one tensor `[M,D,H_m*K]` if members are even."""
        return output_weights_of(self.o.weight, self.rows)

    def mix(self, x: Tensor, mask: Tensor | None, place: Place) -> Tensor:
        """Computes the heads' outputs at the pooled tokens, `[S,B,1 or 2,R]`, given attention's input `[G,B,T,D]`.

        Args:
            mask: `[B,T]`, true where a token counts.
            place: of the pooled tokens.
        """
        asking, allowed = place.of(x), _visible(place, mask, self.positions, x)
        if len(x) == 1 or len(set(self.rows)) == 1:
            groups = 1 if len(x) == 1 else len(self.rows)
            z = self._mix(slice(None), groups, x, asking, place=place, allowed=allowed)
        else:
            pieces = [slice(end - rows, end) for end, rows in zip(accumulate(self.rows), self.rows, strict=True)]
            members = zip(pieces, x.split(1), asking.split(1), strict=True)
            z = torch.cat(
                [self._mix(rows, 1, hidden, tokens, place=place, allowed=allowed) for rows, hidden, tokens in members],
                -1,
            )
        return z.unflatten(1, (-1, asking.shape[2]))

    def output(self, z: Tensor) -> Tensor:
        """Sums the heads' contributions: `[S,B,1 or 2,R]` to `[G,B,1 or 2,D]`, output bias included."""
        return project_output(self.output_weights, self.o.bias, z)

    def _mix(self, rows: slice, groups: int, x: Tensor, asking: Tensor, place: Place, allowed: Tensor | None) -> Tensor:
        """Computes the outputs of the heads in `rows`, `[G,B*tokens,H*K]`.

        The heads belong to `groups` members that each read their own x; one group reads every x.

        Args:
            allowed: `[B or 1,1,1 or tokens,T]`, true where those at `place` may look; None means everywhere.
        """
        width, (batch, tokens) = self.head_width, asking.shape[1:3]
        asking = asking.flatten(1, 2)  # [G,B*tokens,D]
        if not len(self.q.weight[rows]):
            return asking[..., :0]
        (q_weight, q_bias), (k_weight, _), (v_weight, v_bias) = self._weights(rows, groups)
        q = grouped(asking, q_weight, q_bias).unflatten(-1, (-1, width)).transpose(1, 2)  # [G,H,B*tokens,K]
        absorbed = torch.matmul(q, k_weight.unflatten(1, (-1, width))).transpose(1, 2)  # [G,B*tokens,H,D]
        # Heads take the place of queries: they all read one and the same sequence, x.
        queries = absorbed.unflatten(1, (batch, tokens)).flatten(2, 3).flatten(0, 1)[:, None]  # [G*B,1,tokens*H,D]
        keys = x.flatten(0, 1)[:, None]  # [G*B,1,T,D]
        mask = repeated(allowed, len(x)) if allowed is not None else None
        seen = F.scaled_dot_product_attention(queries, keys, keys, attn_mask=mask, scale=width**-0.5)
        seen = seen.unflatten(0, (-1, batch)).reshape(len(x), batch * tokens, -1, x.shape[-1]).transpose(1, 2)
        z = torch.matmul(seen, v_weight.unflatten(1, (-1, width)).mT).transpose(1, 2).flatten(2)
        return z + v_bias[:, None] if v_bias is not None else z

    def _weights(self, rows: slice, groups: int) -> list[tuple[Tensor, Tensor | None]]:
        """Returns weight `[G,H*K,D]` and bias `[G,H*K]` of queries, keys and values."""
        return [
            (
                linear.weight[rows].unflatten(0, (groups, -1)),
                linear.bias[rows].unflatten(0, (groups, -1)) if linear.bias is not None else None,
            )
            for linear in (self.q, self.k, self.v)
        ]


def _visible(place: Place, mask: Tensor | None, positions: Positions, x: Tensor) -> Tensor | None:
    """Returns `[1 or B,1,1 or tokens,T]`, true where those at `place` may look; None means everywhere."""
    allowed = positions.allowed(mask, x.shape[2], x.device)
    if allowed is None or allowed.shape[2] == 1:
        return allowed
    if place.at is None:
        return allowed[:, :, : place.leading]
    samples = torch.arange(place.at.shape[0], device=x.device)
    return allowed.expand(place.at.shape[0], -1, -1, -1)[samples, :, place.at, None]
