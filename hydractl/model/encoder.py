"""A tower: embeddings, layers, and the pooled token that a classifier or a projection reads."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.checkpoint.layout import Division, Kept
from hydractl.checkpoint.tower_spec import ImageEmbeddings, TowerSpec
from hydractl.model.attention import FusedAttention, by_head
from hydractl.model.embeddings import PatchEmbeddings, TokenEmbeddings
from hydractl.model.linear import LayerNorm, Linear, Stored, empty, norm_or_nothing

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_python": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * (1.702 * x).sigmoid(),
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": lambda x: x.tanh(),
}


class Mlp(nn.Module):
    """Two linear maps with an activation between, which in a gated MLP a third map of the input multiplies."""

    factor: Linear | None

    def __init__(self, tower: TowerSpec, prefix: str, stored: Stored) -> None:
        super().__init__()
        self.fc1: Linear = Linear(f"{prefix}.fc1", stored)
        self.factor = Linear(f"{prefix}.factor", stored) if tower.gated else None
        self.norm = norm_or_nothing(f"{prefix}.norm", stored, tower.norm_eps)
        self.fc2: Linear = Linear(f"{prefix}.fc2", stored)
        self.activation = tower.activation

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[G,...,D]` to `[G,...,D]`."""
        return self.fc2(self.activated(x))

    def activated(self, x: Tensor) -> Tensor:
        """Returns what the last map reads, `[G,...,U]`."""
        activations = ACTIVATIONS[self.activation](self.fc1(x))
        read: Tensor = self.norm(activations if self.factor is None else activations * self.factor(x))
        return read


#: The axis along which units lie in a layer's tensors.
UNIT_AXES = {"fc1.weight": 0, "fc1.bias": 0, "factor.weight": 0, "factor.bias": 0, "fc2.weight": 1}


class MemberMlp(Mlp):
    """An MLP whose members keep units of their own: each reads its rows of the first maps and its columns of fc2."""

    def __init__(self, tower: TowerSpec, prefix: str, stored: Stored, units: Kept) -> None:
        super().__init__(tower, prefix, stored)
        # No buffers: those without a place in the file are lost where transformers builds a model without numbers.
        self.places = {
            name: [
                torch.tensor(kept, dtype=torch.long, device="cpu")
                for kept in Division(axis, 1, units).places(f"{prefix}.{name}" in stored.layout.shared)
            ]
            for name, axis in UNIT_AXES.items()
            if f"{prefix}.{name}" in stored.shapes
        }
        self.members = len(units)

    def own(self, member: int) -> dict[str, Tensor]:
        """Returns the tensors of a member's MLP, by the names of a single network."""
        tensors = {}
        for name, places in self.places.items():
            tensor = self.get_parameter(name)
            tensors[name] = tensor.index_select(UNIT_AXES[name], places[member].to(tensor.device))
        if (bias := self.fc2.bias) is not None:
            tensors["fc2.bias"] = bias if bias.ndim == 1 else bias[member]
        return tensors

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[G,...,D]` to `[M,...,D]`."""
        outputs = []
        for member, read in enumerate(x.expand(self.members, *x.shape[1:])):
            weights = self.own(member)
            activations = ACTIVATIONS[self.activation](F.linear(read, weights["fc1.weight"], weights.get("fc1.bias")))
            if self.factor is not None:
                activations = activations * F.linear(read, weights["factor.weight"], weights.get("factor.bias"))
            outputs.append(F.linear(activations, weights["fc2.weight"], weights.get("fc2.bias")))
        return torch.stack(outputs)


def build_mlp(tower: TowerSpec, layer: int, prefix: str, stored: Stored) -> Mlp:
    """Returns a layer's MLP, whose members may have units of their own."""
    units = stored.layout.units_of(tower.name, layer)
    if units is None or (len(set(units)) == 1 and _stored_once(prefix, stored, len(units[0]))):
        return Mlp(tower, prefix, stored)
    return MemberMlp(tower, prefix, stored, units)


def _stored_once(prefix: str, stored: Stored, units: int) -> bool:
    # Biases of adapted maps have members in front.
    ends = {name: -1 if name.endswith("bias") else axis for name, axis in UNIT_AXES.items()}
    shapes = {name: stored.shapes.get(f"{prefix}.{name}") for name in UNIT_AXES}
    return all(shape is None or shape[ends[name]] == units for name, shape in shapes.items())


class Layer(nn.Module):
    """One encoder layer, pre-norm (ViT, CLIP) or post-norm (BERT)."""

    attention_scale: nn.Parameter | None
    mlp_scale: nn.Parameter | None

    def __init__(self, tower: TowerSpec, index: int, stored: Stored, embeddings: nn.Module) -> None:
        super().__init__()
        prefix = f"{tower.name}.layers.{index}"
        self.pre_norm, self.dropout = tower.pre_norm, nn.Dropout(tower.dropout)
        heads = stored.heads_of(tower.name, index)
        name = f"{prefix}.attention"
        self.attention: nn.Module = FusedAttention(tower, index, name, heads, stored=stored, embeddings=embeddings)
        self.attention_norm = norm_or_nothing(f"{prefix}.attention_norm", stored, tower.norm_eps)
        self.mlp = build_mlp(tower, index, f"{prefix}.mlp", stored)
        self.mlp_norm = LayerNorm(f"{prefix}.mlp_norm", stored, tower.norm_eps)
        for scale in ("attention_scale", "mlp_scale"):
            self.register_parameter(scale, empty(stored.shapes[f"{prefix}.{scale}"]) if tower.layer_scale else None)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Maps `[G,B,T,D]` to `[G,B,T,D]`."""
        return self.complete(x, self.attention(self.attention_input(x), mask))

    def attention_input(self, x: Tensor) -> Tensor:
        """Returns what this layer's attention reads of the hidden state."""
        return self.attention_norm(x) if self.pre_norm else x

    def complete(self, x: Tensor, attended: Tensor) -> Tensor:
        """Returns the layer's result, given the hidden state it started from and its attention output."""
        x = x + scaled(self.dropout(attended), self.attention_scale)
        if self.pre_norm:
            x = x + scaled(self.dropout(self.mlp(self.mlp_norm(x))), self.mlp_scale)
        else:
            x = self.attention_norm(x)
            x = self.mlp_norm(x + self.dropout(self.mlp(x)))
        return x


def scaled(x: Tensor, scale: Tensor | None) -> Tensor:
    """Returns `[G,B,T,D]` times a layer's scale `[D]` or `[M,D]`, if it has one."""
    return x if scale is None else x * scale.view(-1, 1, 1, scale.shape[-1])  # [G,1,1,D]


class Place(NamedTuple):
    """The place of the pooled tokens: the `leading` ones of each sample, or the one at `[B]` places."""

    leading: int
    at: Tensor | None = None

    def of(self, x: Tensor) -> Tensor:
        """Returns the tokens `[G,B,1 or 2,D]` at this place of `[G,B,T,D]`."""
        if self.at is None:
            return x[:, :, : self.leading]
        return x[:, torch.arange(self.at.shape[0], device=x.device), self.at, None]


#: The mean tokens `[G,B,D]` after each layer but the last, while they are collected.
Hidden = list[Tensor]


def mean_token(x: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the mean over tokens that count, `[G,B,1,D]` of `[G,B,T,D]`."""
    if mask is None:
        return x.mean(2, keepdim=True)
    counts = mask.to(x.dtype)[:, :, None]  # [B,T,1]
    return (x * counts).sum(2, keepdim=True) / counts.sum(1, keepdim=True)


class AttentionPool(nn.Module):
    """Pools by attention: one learned query reads all tokens, and an MLP follows. Its heads are never dropped."""

    def __init__(self, tower: TowerSpec, stored: Stored) -> None:
        super().__init__()
        prefix, self.head_width = f"{tower.name}.attention_pool", tower.width // (tower.pool_heads or tower.heads)
        self.probe = empty(stored.shapes[f"{prefix}.probe"])
        self.q, self.k, self.v, self.o = (Linear(f"{prefix}.{part}", stored) for part in "qkvo")
        self.norm = LayerNorm(f"{prefix}.norm", stored, tower.norm_eps)
        self.mlp = Mlp(tower, f"{prefix}.mlp", stored)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[G,B,T,D]` to `[G,B,1,D]`."""
        q = self.q(self.probe.view(-1, 1, 1, x.shape[-1])).expand(-1, x.shape[1], -1, -1)
        heads = by_head(q, self.k(x), self.v(x), self.head_width)  # [G*B,1 or T,H,K]
        q, k, v = (t.transpose(1, 2) for t in heads)
        z = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        y = self.o(z.flatten(2).unflatten(0, (-1, x.shape[1])))
        return y + self.mlp(self.norm(y))


class Tower(nn.Module):
    """An encoder and its pooled token."""

    def __init__(self, spec: TowerSpec, stored: Stored) -> None:
        super().__init__()
        name, images = spec.name, isinstance(spec.embeddings, ImageEmbeddings)
        self.spec, self.embeddings = spec, (PatchEmbeddings if images else TokenEmbeddings)(spec, stored)
        layers = nn.ModuleList(Layer(spec, index, stored, self.embeddings) for index in range(spec.layers))
        self.layers = cast("Sequence[Layer]", layers)
        self.norm = norm_or_nothing(f"{name}.norm", stored, spec.norm_eps)
        self.pooler = Linear(f"{name}.pooler", stored) if spec.pooler is not None else None
        self.pooler_norm = norm_or_nothing(f"{name}.pooler_norm", stored, spec.norm_eps)
        self.attention_pool = AttentionPool(spec, stored) if spec.pool == "attention" else None
        self.projection = Linear(f"{name}.projection", stored) if f"{name}.projection.weight" in stored.shapes else None

    def forward_image(self, pixel_values: Tensor, hidden: Hidden | None = None) -> Tensor:
        """Returns pooled tokens `[G,B,D]` of images `[B,channels,height,width]`."""
        return self(self.embeddings(pixel_values), None, None, hidden)

    def forward_text(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        hidden: Hidden | None = None,
    ) -> Tensor:
        """Returns pooled tokens `[G,B,D]` of texts `[B,T]`; the mask is non-zero where a token counts."""
        mask = attention_mask.bool() if attention_mask is not None else None
        return self(self.embeddings(input_ids, token_type_ids), mask, input_ids, hidden)

    def forward(self, x: Tensor, mask: Tensor | None, input_ids: Tensor | None, hidden: Hidden | None = None) -> Tensor:
        """Returns pooled tokens `[G,B,D]`, given the first layer's input `[G,B,T,D]`.

        Args:
            input_ids: `[B,T]` for texts.
            hidden: gets the mean token `[G,B,D]` after each layer but the last.
        """
        for layer in self.layers:
            x = layer(x, mask)
            self.note(hidden, x, mask)
        return self.pool(x, input_ids, mask)

    def note(self, hidden: Hidden | None, x: Tensor, mask: Tensor | None) -> None:
        """Notes the mean of a layer's tokens `[G,B,T,D]`; of the last layer the classifier reads other numbers."""
        if hidden is not None and len(hidden) < len(self.layers) - 1:
            embeddings = self.spec.embeddings
            read = x[:, :, embeddings.prefix :] if isinstance(embeddings, ImageEmbeddings) else x
            hidden.append(mean_token(read, mask)[:, :, 0])

    def pool(self, x: Tensor, input_ids: Tensor | None, mask: Tensor | None = None) -> Tensor:
        """Returns the pooled tokens `[G,B,D]` of a last hidden state, after norm and pooler.

        Two pooled tokens lie side by side, `[G,B,2*D]`; where each token is read, all of them remain, `[G,B,T,D]`.
        """
        if self.spec.norm_tokens:
            return self.finish(self._pooled(self.norm(x), input_ids, mask))
        return self.finish(self.norm(self._pooled(x, input_ids, mask)))

    def finish(self, tokens: Tensor) -> Tensor:
        """Puts normed tokens `[G,B,1 or 2,D]` through the pooler and side by side, `[G,B,D]`; each of all stays."""
        if self.pooler is not None and self.spec.pooler is not None:
            tokens = self.pooler_norm(ACTIVATIONS[self.spec.pooler](self.pooler(tokens)))
        return tokens if self.spec.pool == "each" else tokens.flatten(2)

    def _pooled(self, x: Tensor, input_ids: Tensor | None, mask: Tensor | None) -> Tensor:
        """Returns the vectors that the classifier reads, `[G,B,1 or 2,D]`, or `[G,B,T,D]` where it reads each token."""
        if self.spec.pool == "each":
            return x
        place, embeddings = self.place(input_ids), self.spec.embeddings
        if place is not None:
            return place.of(x)
        if not isinstance(embeddings, ImageEmbeddings):
            return mean_token(x, mask)
        read = x if self.spec.pool_all else x[:, :, embeddings.prefix :]
        if self.attention_pool is not None:
            return self.attention_pool(read)
        mean = read.mean(2, keepdim=True)
        return mean if self.spec.pool == "mean" else torch.cat([x[:, :, :1], mean], 2)

    def place(self, input_ids: Tensor | None) -> Place | None:
        """Returns the place of the pooled tokens; None if all tokens are pooled."""
        pool, embeddings = self.spec.pool, self.spec.embeddings
        if pool in ("first", "first+second"):
            return Place(1 if pool == "first" else 2)
        if isinstance(embeddings, ImageEmbeddings) or pool in ("mean", "each"):
            return None
        assert input_ids is not None
        if pool == "last":
            return Place(1, input_ids.new_full(input_ids.shape[:1], input_ids.shape[1] - 1))
        eos = embeddings.eos
        return Place(1, input_ids.argmax(-1) if eos is None else (input_ids == eos).int().argmax(-1))
