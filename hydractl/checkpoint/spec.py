"""What a network is made of, said once for every family: the values a forward pass needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Task = Literal["image-classification", "text-classification", "zero-shot"]
Pool = Literal["first", "eos"]


@dataclass(frozen=True)
class ImageEmbeddings:
    """Patches of an image, a class token before them, learned positions added."""

    channels: int
    image_size: tuple[int, int]  # height, width
    patch_size: tuple[int, int]
    patch_bias: bool
    norm: bool  # CLIP normalises before the first layer

    @property
    def patches(self) -> int:
        return (self.image_size[0] // self.patch_size[0]) * (self.image_size[1] // self.patch_size[1])

    @property
    def tokens(self) -> int:
        return self.patches + 1


@dataclass(frozen=True)
class TextEmbeddings:
    """Word pieces, learned positions and (BERT) sentence types, added up."""

    vocabulary: int
    positions: int
    token_types: int  # 0 where the family has none
    norm: bool
    eos: int | None = None  # the id whose first place is pooled; None: the largest id of the sequence


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
    pool: Pool = "first"
    pooler: str | None = None  # activation of a dense layer on the pooled token
    dropout: float = 0.0  # on hidden states, in training only
    attention_dropout: float = 0.0


@dataclass(frozen=True)
class ModelSpec:
    """A classifier: its towers, and what turns pooled tokens into logits.

    `classes` counts the rows of the classifier; a zero-shot model has None and compares embeddings of
    width `projection` instead.
    """

    task: Task
    towers: tuple[TowerSpec, ...]
    classes: int | None = None
    projection: int | None = None
    classifier_dropout: float = 0.0

    def tower(self, name: str) -> TowerSpec:
        return next(tower for tower in self.towers if tower.name == name)
