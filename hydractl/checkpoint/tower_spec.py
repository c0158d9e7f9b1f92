"""The parts and sizes of one tower, for every family: the values its forward pass needs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

#: The tokens that a classifier reads: one or two of the first, the end of a text, the mean of patches or of a text,
#: the last of a text, what a query of the pooling's own attends to, or every token of a text by itself.
Pool = Literal["first", "first+second", "first+mean", "mean", "eos", "last", "attention", "each"]
Activation = Literal[
    "gelu", "gelu_python", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu", "silu", "swish", "tanh"
]
#: Maps without a bias; all norms of a tower have a shift or none has.
Unbiased = Literal["attention.q", "attention.k", "attention.v", "attention.o", "mlp", "norm", "pooler"]
POOLS_OF: dict[str, tuple[Pool, ...]] = {
    "vision": ("first", "first+second", "first+mean", "mean", "attention"),
    "text": ("first", "eos", "mean", "last", "each"),
}
#: The range of each field, wider than any network. A value outside comes from a damaged file and is refused before
#: anything of that size is made.
RANGES: dict[str, tuple[float, float]] = {
    "channels": (1, 1024),
    "image_size": (1, 2**14),
    "patch_size": (1, 2**14),
    "registers": (0, 2**10),
    "unplaced": (0, 2**10),
    "vocabulary": (1, 2**24),
    "positions": (1, 2**20),
    "token_types": (0, 2**10),
    "eos": (0, 2**31),
    "padding": (0, 2**20),
    "layers": (1, 500),
    "heads": (1, 1000),
    "head_width": (1, 2**14),
    "width": (1, 2**16),
    "mlp_width": (1, 2**20),
    "norm_eps": (0, 1),
    "dropout": (0, 1),
    "attention_dropout": (0, 1),
    "classes": (0, 2**20),  # 0 before a classifier is made
    "projection": (1, 2**16),
    "truncate_dim": (1, 2**31),
    "classifier_dropout": (0, 1),
    "base": (0, 1e9),
    "reach": (0, 2**20),
    "buckets": (0, 2**16),
    "most": (2, 2**20),
    "distances": (1, 2**16),
    "extent": (1, 2**14),
    "offset": (-(2**14), 2**14),
    "pool_heads": (1, 1000),
}


def later(default: Any) -> Any:
    """Returns a field that files leave out where it has its default, as they did before there was such a field."""
    return field(default=default, metadata={"later": True})


def check_ranges(value: Any) -> None:
    for each in fields(value):
        setting = getattr(value, each.name)
        if each.name not in RANGES or setting is None:
            continue
        least, most = RANGES[each.name]
        for number in setting if isinstance(setting, tuple) else (setting,):
            if not least <= number <= most:
                raise ValueError(f"{each.name} is {number}, should be from {least} to {most}")


@dataclass(frozen=True)
class ImageEmbeddings:
    """Patches of an image, after a few tokens of their own (class, distillation, registers), with learned positions."""

    channels: int
    image_size: tuple[int, int]  # height, width
    patch_size: tuple[int, int]
    patch_bias: bool
    norm: bool  # CLIP normalises before the first layer
    class_token: bool = True
    distillation_token: bool = False
    registers: int = 0
    unplaced: int = 0  # the last tokens before the patches that have no position
    learned: bool = later(True)  # a table of positions is added

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.patches:
            raise ValueError(f"patch_size {self.patch_size} is larger than image_size {self.image_size}")
        if self.unplaced > self.prefix:
            raise ValueError(f"unplaced is {self.unplaced}, of {self.prefix} tokens before the patches")

    @property
    def prefix(self) -> int:
        """The number of tokens before the patches."""
        return self.class_token + self.distillation_token + self.registers

    @property
    def positions(self) -> int:
        """Rows of the table of positions."""
        return self.prefix - self.unplaced + self.patches

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.image_size[0] // self.patch_size[0], self.image_size[1] // self.patch_size[1]

    @property
    def patches(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def tokens(self) -> int:
        return self.prefix + self.patches


@dataclass(frozen=True)
class TextEmbeddings:
    """Word pieces, learned positions and (BERT) sentence types, added up."""

    vocabulary: int
    positions: int
    token_types: int  # 0 if the family has no token types
    norm: bool
    eos: int | None = None  # the id whose first place is pooled; None: the largest id of the sequence
    padding: int | None = None  # RoBERTa counts positions from the one after this id, and gives padding none
    learned: bool = later(True)  # a table of positions is added
    filled: bool = later(False)  # every text is padded to the largest length, and padding counts as text
    width: int | None = later(None)  # of the tables, where a linear map makes D numbers of it

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.max_tokens < 1:
            raise ValueError(f"positions is {self.positions}, of which padding {self.padding} leaves none")

    @property
    def max_tokens(self) -> int:
        """The largest number of tokens of a text."""
        return self.positions - (0 if self.padding is None else self.padding + 1)


@dataclass(frozen=True)
class Rotary:
    """Queries and keys are turned by angles that grow with the place of a token, pair of numbers by pair.

    A place is a text token's number, or row and column of a patch with half of the pairs each: the centre of the
    patch as an angle from -pi to pi over the image. Tokens before the patches are not turned.
    """

    base: float  # of the speeds, from 1 to nearly 1 / base
    #: Centres of patches times speeds (transformers' DINOv3) or by periods (timm's), or numbers of rows and columns.
    places: Literal["centres", "periods", "steps"] = later("centres")
    extent: tuple[int, int] | None = later(None)  # the grid to which steps are scaled
    columns_first: bool = later(False)  # the first half of the pairs tells columns
    interleaved: bool = later(False)  # pairs are neighbours, not a half apart
    offset: float = later(0.0)  # added to steps

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class Relative:
    """Each head adds to its scores a number that depends on the distance of two tokens: each layer has a table of them.

    Distances of a text fall into buckets, half of them ahead, wider ones from afar (T5's). A vision tower, with a class
    token and no other before its patches, tells all distances apart.
    """

    buckets: int = 0  # of a text
    most: int = 128  # from here on all distances are alike

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class Disentangled:
    """Queries of a text meet a key of each distance, too, and keys a query of each (DeBERTa).

    Layers share embeddings of distances; each head maps them to keys and queries of its own.
    """

    parts: tuple[Literal["k", "q"], ...]  # the maps of distances: to keys, to queries
    distances: int  # told apart on each side
    most: int | None = None  # distances beyond half of them fall into wider buckets, up to this one
    own: bool = True  # heads map distances otherwise than tokens
    norm: bool = False  # of the embeddings

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.parts or len(set(self.parts)) < len(self.parts):
            raise ValueError("disentangled.parts should be one or two, each once")
        if self.most is not None and self.distances < 2:
            raise ValueError("disentangled.distances should be 2 or more where they fall into buckets")


@dataclass(frozen=True)
class Local:
    """The layers in which tokens see only those at most `reach` places away."""

    at: tuple[int, ...]
    reach: int
    base: float | None = None  # of the layers' rotation

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class TowerSpec:
    """One transformer encoder of L layers, H heads of width K, model width D."""

    name: Literal["vision", "text"]
    layers: int
    heads: int
    head_width: int
    width: int
    mlp_width: int
    activation: Activation
    norm_eps: float
    embeddings: ImageEmbeddings | TextEmbeddings
    pre_norm: bool = True  # BERT normalises after the residual sum
    causal: bool = False
    qkv_bias: bool = True
    final_norm: bool = True
    norm_tokens: bool = False  # the final norm comes before tokens are averaged, not after
    layer_scale: bool = False  # what attention and MLP add is scaled, number by number
    pool: Pool = "first"
    pooler: Activation | None = None  # activation of a dense layer on the pooled token
    dropout: float = 0.0  # on hidden states, in training only
    attention_dropout: float = 0.0
    rotary: Rotary | None = later(None)
    local: Local | None = later(None)
    relative: Relative | None = later(None)
    disentangled: Disentangled | None = later(None)
    unbiased: tuple[Unbiased, ...] = later(())
    first_norm: bool = later(True)  # the first layer's attention norm
    gated: bool = later(False)  # the MLP's activations are multiplied by a second map of its input
    pooler_norm: bool = later(False)  # a norm after the pooler's activation
    head_norm: bool = later(False)  # each head's queries and keys are normed
    unit_norm: bool = later(False)  # the MLP's activations are normed, so that no unit can be dropped alone
    pool_all: bool = later(False)  # tokens before the patches are pooled, too, where patches are
    pool_heads: int | None = later(None)  # of a pooling by attention; None: as many as a layer has
    projected: bool = later(True)  # of a zero-shot model: pooled tokens are mapped to the width of embeddings
    projection_bias: bool = later(False)

    def __post_init__(self) -> None:
        check_ranges(self)
        turned = 0 if self.rotary is None else 2 if self.name == "text" else 4
        if turned and self.head_width % turned:
            raise ValueError(f"head_width is {self.head_width}, should be a multiple of {turned} to be turned")
        if (relative := self.relative) is not None:
            if isinstance(self.embeddings, ImageEmbeddings) and (relative.buckets or self.embeddings.prefix != 1):
                raise ValueError("relative: an image has one token before its patches, and no buckets")
            if self.name == "text" and (relative.buckets < 4 or relative.most <= relative.buckets // 4):
                limits = "relative.buckets should be 4 or more in a text tower, relative.most more than a quarter"
                raise ValueError(limits)
        if self.pool_heads is not None and self.width % self.pool_heads:
            raise ValueError(f"pool_heads is {self.pool_heads}, should divide width {self.width}")
        if self.pool == "attention" and (self.gated or self.unit_norm):
            raise ValueError("pool is attention, which has no gated or normed MLP")
        if self.disentangled is not None and self.head_norm:
            raise ValueError("disentangled: its queries and keys are not normed")
        if self.disentangled is not None and (self.name == "vision" or self.relative is not None):
            raise ValueError("disentangled: only a text tower without other relative positions has such attention")
        if self.local is not None and not all(0 <= layer < self.layers for layer in self.local.at):
            raise ValueError(f"local.at should be from 0 to {self.layers - 1}")
        if isinstance(self.embeddings, ImageEmbeddings) != (self.name == "vision"):
            raise ValueError(f"embeddings of a {self.name} tower are of the other kind")
        if self.pool not in POOLS_OF[self.name]:
            pools = " or ".join(POOLS_OF[self.name])
            raise ValueError(f"pool is {self.pool}, should be {pools} in a {self.name} tower")

    @property
    def tokens_read(self) -> int:
        """The number of tokens of the last hidden state that are pooled; 0 for all of them."""
        return {"first": 1, "eos": 1, "last": 1, "first+second": 2}.get(self.pool, 0)

    def left_tokens(self, tokens: int) -> int:
        """Returns how many of so many tokens are left to classify after pooling."""
        return tokens if self.pool == "each" else 1

    @property
    def distances(self) -> int:
        """Numbers that a head has for distances."""
        if self.relative is None or not isinstance(self.embeddings, ImageEmbeddings):
            return 0 if self.relative is None else self.relative.buckets
        rows, columns = self.embeddings.grid
        return (2 * rows - 1) * (2 * columns - 1) + 3

    @property
    def features(self) -> int:
        """The width of the pooled features."""
        return self.width * (2 if self.pool in ("first+second", "first+mean") else 1)
