"""The last layer's attention for the one token that is pooled, or two."""

from __future__ import annotations

from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from hydractl.model.attention import FusedAttention
from hydractl.model.linear import Linear
from hydractl.model.product import grouped


def pooled_mix(attention: FusedAttention, x: Tensor, token: Tensor, allowed: Tensor | None) -> Tensor:
    """What heads see at a few tokens per sample, `[S,B,P,R]`, without projecting keys or values of all tokens.

    A head's scores are those of the query `W_k^T q` against x itself, and its output is `W_v` of the same mean of x:
    about K times fewer multiply-adds, which pays from two tokens on. The key bias adds one number to all scores of a
    query and cancels in the softmax; the value bias passes, as weights there add up to one. Exact up to rounding.

    Args:
        x: `[G,B,T,D]`, what attention reads.
        token: `[G,B,P,D]`, the P rows of x that ask, one or two.
        allowed: `[B,T]`, true where they may look; None means everywhere.
    """
    members, tokens = len(attention.rows), token.shape[2]
    if len(x) == 1 or members == 1 or len(set(attention.rows)) == 1:
        groups = 1 if len(x) == 1 or members == 1 else members
        z = _mix(attention, slice(None), groups, x, token, allowed)
    else:
        ends = accumulate(attention.rows)
        pieces = [slice(end - rows, end) for end, rows in zip(ends, attention.rows, strict=True)]
        z = torch.cat(
            [_mix(attention, rows, 1, x[m : m + 1], token[m : m + 1], allowed) for m, rows in enumerate(pieces)], -1
        )
    return z.unflatten(1, (-1, tokens))


def _mix(
    attention: FusedAttention, rows: slice, groups: int, x: Tensor, token: Tensor, allowed: Tensor | None
) -> Tensor:
    """`[G,B*P,H*K]` of the heads in `rows`: of `groups` members, each with its own x, or of one set for every x."""
    width, (batch, tokens) = attention.head_width, token.shape[1:3]
    token = token.flatten(1, 2)  # [G,B*P,D]
    if not len(attention.q.weight[rows]):
        return token[..., :0]

    def weights(linear: Linear) -> tuple[Tensor, Tensor | None]:
        bias = linear.bias[rows].unflatten(0, (groups, -1)) if linear.bias is not None else None
        return linear.weight[rows].unflatten(0, (groups, -1)), bias

    (q_weight, q_bias), (k_weight, _), (v_weight, v_bias) = map(weights, (attention.q, attention.k, attention.v))
    q = grouped(token, q_weight, q_bias).unflatten(-1, (-1, width)).transpose(1, 2)  # [G,H,B*P,K]
    absorbed = torch.matmul(q, k_weight.unflatten(1, (-1, width))).transpose(1, 2)  # [G,B*P,H,D]
    # Heads take the place of queries: they all read one and the same sequence, x.
    queries = absorbed.unflatten(1, (batch, tokens)).flatten(2, 3).flatten(0, 1)[:, None]  # [G*B,1,P*H,D]
    keys = x.flatten(0, 1)[:, None]  # [G*B,1,T,D]
    mask = allowed.repeat(len(x), 1)[:, None, None] if allowed is not None else None
    seen = F.scaled_dot_product_attention(queries, keys, keys, attn_mask=mask, scale=width**-0.5)
    seen = seen.unflatten(0, (-1, batch)).reshape(len(x), batch * tokens, -1, x.shape[-1]).transpose(1, 2)
    z = torch.matmul(seen, v_weight.unflatten(1, (-1, width)).mT).transpose(1, 2).flatten(2)  # [G,B*P,H*K]
    return z + v_bias[:, None] if v_bias is not None else z
