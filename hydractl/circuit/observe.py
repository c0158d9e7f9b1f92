"""A network's forward pass with the heads' own outputs open to view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor

from hydractl.model.attention import FusedAttention
from hydractl.model.encoder import Layer, Tower
from hydractl.model.hydra import Hydra

#: Told of a layer's number and of what its heads see, `[1,B,T,H*K]`; returns what goes on in its place.
View = Callable[[int, Tensor], Tensor]


class Hidden(NamedTuple):
    """A hidden state `[G,B,T,D]`, the mask `[B,T]` of tokens that count, and the ids `[B,T]` of texts."""

    x: Tensor
    mask: Tensor | None
    ids: Tensor | None


def embed(tower: Tower, inputs: Mapping[str, Tensor]) -> Hidden:
    """The hidden state that a tower's first layer reads."""
    if "pixel_values" in inputs:
        return Hidden(tower.embeddings(inputs["pixel_values"]), None, None)
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    return Hidden(tower.embeddings(ids, inputs.get("token_type_ids")), mask.bool() if mask is not None else None, ids)


def attention_of(layer: Layer) -> FusedAttention:
    """A layer's attention, its heads apart: of a model that is not optimised for inference."""
    assert isinstance(layer.attention, FusedAttention)
    return layer.attention


def pooled(tower: Tower, inputs: Mapping[str, Tensor], view: View) -> Tensor:
    """What a tower pools, `[1,B,D]`, every layer's heads shown to `view` on the way."""
    x, mask, ids = embed(tower, inputs)
    for number, layer in enumerate(tower.layers):
        attention = attention_of(layer)
        z = view(number, attention.mix(layer.attention_input(x), mask))
        x = layer.complete(x, attention.output(z))
    return tower.pool(x, ids)


def kept_counts(model: Hydra, tower: str) -> list[int]:
    """How many heads a single-member model has in each layer of a tower."""
    return [len(members[0]) for members in model.heads[tower]]
