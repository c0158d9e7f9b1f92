"""Attention of all members at once: the kept heads of every member side by side, without padding."""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.checkpoint.layout import Kept
from hydractl.checkpoint.tower_spec import TowerSpec
from hydractl.model.embeddings import TokenEmbeddings
from hydractl.model.linear import LayerNorm, Linear, Stored, empty
from hydractl.model.positions import Positions, Terms, positions_of

Qkv = tuple[Tensor, Tensor, Tensor]

#: Tokens up to which plain products beat torch's own attention on a processor in half precision: measured with 37 to
#: 1024 on an EPYC with AVX-512, they take .4 to .6 of its time in bfloat16, and as long in float32.
PRODUCTS_UP_TO = 512
#: Scores from which that pays in inference: fewer are computed sooner than three operators start.
PRODUCTS_FROM = 20_000


def _bfloat16_without_tiles() -> bool:
    """Tells whether the processor has instructions for bfloat16 but no tiles, which torch's own attention would use."""
    checks = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return [check is not None and check() for check in checks] == [True, False]


BFLOAT16 = _bfloat16_without_tiles()


class FusedAttention(nn.Module):
    """Multi-head attention over the kept heads of M members ([HE] 4.2, grouped fully-connected layers).

    q, k, v weights are `[R,D]`, the output weight is `[D,R]`, with R = sum of H_m*K: members one after the other. A
    layer that all members share holds the rows of one.
    """

    relative: nn.Parameter | None

    def __init__(
        self,
        tower: TowerSpec,
        layer: int,
        prefix: str,
        heads: Kept,
        stored: Stored,
        embeddings: nn.Module | None = None,
    ) -> None:
        """
        Args:
            prefix: of the names under which its tensors are stored.
            heads: kept heads of each member, or of one if members share the layer.
            embeddings: the tower's, which may hold those of distances.
        """
        super().__init__()
        self.head_width, self.positions, self.heads = tower.head_width, positions_of(tower, layer), heads
        self.rows = tuple(len(kept) * tower.head_width for kept in heads)
        self.q, self.k, self.v, self.o = (Linear(f"{prefix}.{part}", stored) for part in "qkvo")
        relative = stored.shapes.get(f"{prefix}.relative")
        self.register_parameter("relative", empty(relative) if relative is not None else None)
        self.q_norm, self.k_norm = (
            LayerNorm(f"{prefix}.{name}", stored, tower.norm_eps) if tower.head_norm else None
            for name in ("q_norm", "k_norm")
        )
        self.dropout = nn.Dropout(tower.attention_dropout)
        # A tuple, since the module stays the tower's.
        self.embeddings = (embeddings,)
        distance_parts = tower.disentangled.parts if tower.disentangled is not None and tower.disentangled.own else ()
        for part in distance_parts:
            self.add_module(f"distance_{part}", Linear(f"{prefix}.distance_{part}", stored))

    def head_norms(self) -> Tensor | None:
        """Returns weights and biases of the norms of queries and keys, `[4,1,H,K]`, members' heads in turn."""
        if self.q_norm is None or self.k_norm is None:
            return None
        parts = [t for norm in (self.q_norm, self.k_norm) for t in (norm.weight, norm.bias) if t is not None]
        counts = [rows // self.head_width for rows in self.rows]
        by_head = [[t[m].expand(count, -1) for m, count in enumerate(counts)] for t in parts]
        return torch.stack([torch.cat(weights) for weights in by_head])[:, None]

    def terms(self) -> Terms | None:
        """Returns what the heads' scores gain by distances, members' heads one after the other or S of them."""
        if self.relative is not None:
            return Terms(self.relative[None], trained=self.relative.requires_grad)
        if (spec := self.positions.disentangled) is None:
            return None
        [embeddings], maps, gains = self.embeddings, dict(self.named_children()), {}
        vectors = cast(TokenEmbeddings, embeddings).distance_vectors()
        for part in spec.parts:
            mapped = self._project(cast(Linear, maps[f"distance_{part}" if spec.own else part]), vectors)  # [S,1,n,R]
            gains[part] = mapped[:, 0].unflatten(-1, (-1, self.head_width)).transpose(1, 2) * self.positions.scale
        copies, trained = max(map(len, gains.values())), any(part.requires_grad for part in self.parameters())
        return Terms(None, gains.get("k"), gains.get("q"), trained).each(lambda t: t.expand(copies, -1, -1, -1))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Maps `[G,B,T,D]` to the layer's attention output `[G,B,T,D]`; mask `[B,T]` is true where a token counts."""
        return self.output(self.mix(x, mask))

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Computes the heads' outputs before the output projection, `[S,B,T,R]`.

        S is G if members share the layer, else 1 with the members' heads side by side.
        """
        q, k, v = self._project(self.q, x), self._project(self.k, x), self._project(self.v, x)  # [S,B,T,R]
        if q.shape[-1] == 0:
            return q
        dropout = self.dropout.p if self.training else 0.0
        terms = self.terms()
        q, k, v = by_head(q, k, v, self.head_width, terms=terms)
        q, k = with_normed_heads(q, k, self.head_norms(), self.q_norm.eps if self.q_norm is not None else 0.0)
        z = attend((q, k, v), mask, self.positions, terms, dropout=dropout)
        return z.flatten(2).unflatten(0, (-1, x.shape[1]))

    def output(self, z: Tensor) -> Tensor:
        """Sums the heads' contributions: `[S,B,T,R]` to `[G,B,T,D]`, output bias included."""
        # The bias belongs to the layer, not to a head: it stays when every head of a member is gone.
        if len(self.rows) == 1:
            return self.o(z)
        bias = self.o.bias if self.o.bias is not None else [None] * len(self.rows)
        members = zip(z[0].split(self.rows, -1), self.o.weight.split(self.rows, 1), bias, strict=True)
        return torch.stack([F.linear(*member) for member in members])

    def _project(self, linear: Linear, x: Tensor) -> Tensor:
        """Maps `[G,B,T,D]` to `[S,B,T,R]`."""
        if len(self.rows) == 1 or len(x) == 1:
            # Either one set of heads for every member, or one input for all heads.
            return linear(x)
        weights = linear.weight.split(self.rows)
        biases = linear.bias.split(self.rows) if linear.bias is not None else [None] * len(weights)
        return torch.cat([F.linear(*member) for member in zip(x, weights, biases, strict=True)], -1)[None]


def by_head(q: Tensor, k: Tensor, v: Tensor, head_width: int, terms: Terms | None = None) -> Qkv:
    """Splits three `[1 or S,B,T,R]` into heads, `[S*B,T,H,K]`; one that members share is expanded."""
    copies = max(t.shape[0] for t in (q, k, v, *(terms.all if terms is not None else ())))
    q, k, v = (t.expand(copies, -1, -1, -1).flatten(0, 1).unflatten(-1, (-1, head_width)) for t in (q, k, v))
    return q, k, v


def with_normed_heads(q: Tensor, k: Tensor, norms: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """Returns queries and keys `[S*B,T,H,K]` after their norms, `[4,S,H,K]`, if they have any."""
    if norms is None:
        return q, k

    def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        apart = F.layer_norm(x, x.shape[-1:], eps=eps).unflatten(0, (weight.shape[0], -1))  # [S,B,T,H,K]
        return (apart * weight[:, None, None] + bias[:, None, None]).flatten(0, 1)

    return normed(q, norms[0], norms[1]), normed(k, norms[2], norms[3])


def attend(
    qkv: Qkv, mask: Tensor | None, positions: Positions, terms: Terms | None = None, dropout: float = 0.0
) -> Tensor:
    """Computes attention, `[S*B,T,H,K]` from three of that shape.

    Args:
        mask: `[B,T]`, true where a token counts.
    """
    q, k, v = qkv
    q, k, v = (t.transpose(1, 2) for t in (positions.turn(q), positions.turn(k), v))
    return attend_turned((q, k, v), mask, positions, terms, dropout=dropout)


def attend_turned(
    qkv: Qkv, mask: Tensor | None, positions: Positions, terms: Terms | None = None, dropout: float = 0.0
) -> Tensor:
    """Computes `attend` where queries and keys are turned already, and all three are `[S*B,H,T,K]`."""
    q, k, v = qkv
    causal = positions.causal and positions.reach is None and mask is None
    allowed = None if causal else positions.allowed(mask, k.shape[2], k.device)
    if allowed is not None and mask is not None:
        # `len` would fix the batch size of a traced graph.
        allowed = repeated(allowed, q.shape[0] // mask.shape[0])
    if terms is not None:
        allowed = biased(positions.bias(terms, q.transpose(1, 2), k.transpose(1, 2)), allowed)
    # Torch's own rounds otherwise where a table trains.
    trained = terms is not None and (terms.trained or (allowed is not None and allowed.requires_grad))
    by_products = trained or _faster_by_products(q)
    attention = attend_by_products if by_products else F.scaled_dot_product_attention
    z: Tensor = attention(q, k, v, attn_mask=allowed, is_causal=causal, dropout_p=dropout, scale=positions.scale)
    return z.transpose(1, 2)


def biased(bias: Tensor, allowed: Tensor | None) -> Tensor:
    """Returns what is added to scores: the bias, and minus infinity where a token may not look."""
    return bias if allowed is None else bias.masked_fill(~allowed, float("-inf"))


def repeated(x: Tensor, copies: int) -> Tensor:
    """Returns x one copy after the other along its first axis."""
    return x.repeat(copies, *(1,) * (x.ndim - 1)) if copies > 1 else x


def attend_by_products(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, is_causal: bool, dropout_p: float, scale: float
) -> Tensor:
    """Computes torch's `scaled_dot_product_attention` of three `[B,H,T,K]`, written out.

    In half precision on a processor, torch's takes twice as long at 37 tokens, and its backward pass three to five
    times as long at 65.
    """
    if q.requires_grad or q.dtype != torch.bfloat16:
        scores = (q * scale) @ k.mT
    else:  # the product scales: no pass over the queries
        scores = torch.baddbmm(q.new_zeros(1, 1, 1), q.flatten(0, 1), k.flatten(0, 1).mT, beta=0, alpha=scale)
        scores = scores.unflatten(0, q.shape[:2])
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if attn_mask is not None and attn_mask.is_floating_point():
        scores = scores + attn_mask
    elif attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    return F.dropout(scores.softmax(-1).to(v.dtype), dropout_p) @ v


def _faster_by_products(q: Tensor) -> bool:
    if not q.is_cpu or q.dtype not in (torch.bfloat16, torch.float16):
        return False
    # A compiled graph serves every length, so its choice must not depend on one.
    if not q.requires_grad and (not BFLOAT16 or q.dtype == torch.float16 or torch.compiler.is_compiling()):
        return False
    tokens = q.shape[2]
    return tokens <= PRODUCTS_UP_TO and (q.requires_grad or len(q) * q.shape[1] * tokens**2 >= PRODUCTS_FROM)
