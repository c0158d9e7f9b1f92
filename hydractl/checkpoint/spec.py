"""What a network is made of, said once for every family: the values a forward pass needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Task = Literal["image-classification", "text-classification", "zero-shot"]
#: Which tokens a classifier reads: one or two of the first, the end of a text, the mean of an image's patches.
Pool = Literal["first", "first+second", "first+mean", "mean", "eos"]


@dataclass(frozen=True)
class ImageEmbeddings:
    """Patches of an image, with learned positions, after a few tokens of their own: class, distillation, registers."""

    channels: int
    image_size: tuple[int, int]  # height, width
    patch_size: tuple[int, int]
    patch_bias: bool
    norm: bool  # CLIP normalises before the first layer
    class_token: bool = True
    distillation_token: bool = False
    registers: int = 0
    unplaced: int = 0  # how many of the tokens before the patches, the last of them, have no position

    @property
    def prefix(self) -> int:
        """How many tokens stand before the patches."""
        return self.class_token + self.distillation_token + self.registers

    @property
    def positions(self) -> int:
        """Rows of the table of positions."""
        return self.prefix - self.unplaced + self.patches

    @property
    def patches(self) -> int:
        return (self.image_size[0] // self.patch_size[0]) * (self.image_size[1] // self.patch_size[1])

    @property
    def tokens(self) -> int:
        return self.prefix + self.patches


@dataclass(frozen=True)
class TextEmbeddings:
    """Word pieces, learned positions and (BERT) sentence types, added up."""

    vocabulary: int
    positions: int
    token_types: int  # 0 where the family has none
    norm: bool
    eos: int | None = None  # the id whose first place is pooled; None: the largest id of the sequence
    padding: int | None = None  # RoBERTa counts positions from the one after this id, and none for padding itself

    @property
    def max_tokens(self) -> int:
        """How many tokens a text may have."""
        return self.positions - (0 if self.padding is None else self.padding + 1)


@dataclass(frozen=True)
class TowerSpec:
    """One transformer encoder of L layers, H heads of width K, model width D."""

    name: Literal["vision", "text"]
    layers: int
    heads: int
    head_width: int
    width: int
    mlp_width: int
    activation: str
    norm_eps: float
    embeddings: ImageEmbeddings | TextEmbeddings
    pre_norm: bool = True  # BERT normalises after the residual sum
    causal: bool = False
    qkv_bias: bool = True
    final_norm: bool = True
    norm_tokens: bool = False  # the final norm comes before tokens are averaged, not after
    layer_scale: bool = False  # what attention and MLP add is scaled, number by number
    pool: Pool = "first"
    pooler: str | None = None  # activation of a dense layer on the pooled token
    dropout: float = 0.0  # on hidden states, in training only
    attention_dropout: float = 0.0

    @property
    def tokens_read(self) -> int:
        """How many tokens of the last hidden state are pooled; 0 where all of them are."""
        return {"first": 1, "eos": 1, "first+second": 2}.get(self.pool, 0)

    @property
    def features(self) -> int:
        """The width of what is pooled."""
        return self.width * (2 if self.pool in ("first+second", "first+mean") else 1)


@dataclass(frozen=True)
class ModelSpec:
    """A classifier: its towers, and what turns pooled tokens into logits.

    `classes` counts the rows of the classifier; a zero-shot model has None and compares embeddings of
    width `projection` instead. A distilled model has two classifiers, one for each of two tokens, and answers with
    the mean of their logits.
    """

    task: Task
    towers: tuple[TowerSpec, ...]
    classes: int | None = None
    projection: int | None = None
    classifier_dropout: float = 0.0
    distilled: bool = False

    def tower(self, name: str) -> TowerSpec:
        return next(tower for tower in self.towers if tower.name == name)


def spec_from_json(value: Mapping[str, Any]) -> ModelSpec:
    """The spec that `dataclasses.asdict` wrote, also when it has been JSON in between."""

    def tower(fields: Mapping[str, Any]) -> TowerSpec:
        kind: Any = ImageEmbeddings if fields["name"] == "vision" else TextEmbeddings
        # JSON has no tuples, and all lists here were some.
        embeddings = {k: tuple(v) if isinstance(v, list) else v for k, v in fields["embeddings"].items()}
        return TowerSpec(**{**fields, "embeddings": kind(**embeddings)})

    return ModelSpec(**{**value, "towers": tuple(map(tower, value["towers"]))})
