"""From pixels or token ids to the first hidden state `[G,B,T,D]`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.checkpoint.spec import ImageEmbeddings, TextEmbeddings, TowerSpec
from hydractl.errors import DataError
from hydractl.model.linear import LayerNorm, Linear, empty

Shapes = Mapping[str, tuple[int, ...]]


def _norm(tower: TowerSpec, shapes: Shapes) -> nn.Module:
    prefix = f"{tower.name}.embeddings.norm"
    if not tower.embeddings.norm:
        return nn.Identity()
    return LayerNorm(shapes[f"{prefix}.weight"], shapes[f"{prefix}.bias"], tower.norm_eps)


class PatchEmbeddings(nn.Module):
    """Patches through one linear map, a class token in front, positions added."""

    def __init__(self, tower: TowerSpec, shapes: Shapes) -> None:
        super().__init__()
        assert isinstance(tower.embeddings, ImageEmbeddings)
        prefix = f"{tower.name}.embeddings"
        self.spec = tower.embeddings
        self.patch = Linear(shapes[f"{prefix}.patch.weight"], shapes.get(f"{prefix}.patch.bias"))
        self.class_token = empty(shapes[f"{prefix}.class_token"])
        self.position = empty(shapes[f"{prefix}.position"])
        self.norm = _norm(tower, shapes)
        self.dropout = nn.Dropout(tower.dropout)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """`[B,C,H,W]` to `[G,B,T,D]`."""
        expected = (self.spec.channels, *self.spec.image_size)
        if tuple(pixel_values.shape[1:]) != expected:
            raise DataError(f"images of shape {list(pixel_values.shape[1:])} for a model of {list(expected)}")
        x = self._patches(pixel_values.to(self.patch.weight.dtype))
        token = self.class_token.view(-1, 1, 1, self.class_token.shape[-1])  # [G,1,1,D]
        groups = max(len(token), len(x))
        x = torch.cat([token.expand(groups, x.shape[1], 1, -1), x.expand(groups, -1, -1, -1)], 2)
        x = x + self.position.view(-1, 1, *self.position.shape[-2:])
        y: Tensor = self.dropout(self.norm(x))
        return y

    def _patches(self, pixel_values: Tensor) -> Tensor:
        weight: Tensor = self.patch.weight
        bias = self.patch.bias
        if weight.ndim == 4 and (bias is None or bias.ndim == 1):
            x = F.conv2d(pixel_values, weight, bias, stride=self.spec.patch_size)[:, None]  # [B,1,D,h,w]
        else:
            groups = len(weight) if weight.ndim == 5 else len(_present(bias))
            weight = weight.expand(groups, *weight.shape[-4:]).flatten(0, 1)
            bias = bias.expand(groups, -1).flatten() if bias is not None else None
            x = F.conv2d(pixel_values, weight, bias, stride=self.spec.patch_size).unflatten(1, (groups, -1))
        return x.flatten(3).permute(1, 0, 3, 2)


def _present(bias: Tensor | None) -> Tensor:
    assert bias is not None
    return bias


class TokenEmbeddings(nn.Module):
    """Word pieces, positions and sentence types added up."""

    def __init__(self, tower: TowerSpec, shapes: Shapes) -> None:
        super().__init__()
        assert isinstance(tower.embeddings, TextEmbeddings)
        prefix = f"{tower.name}.embeddings"
        self.spec = tower.embeddings
        self.word = empty(shapes[f"{prefix}.word"])
        self.position = empty(shapes[f"{prefix}.position"])
        self.token_type = empty(shapes[f"{prefix}.token_type"]) if self.spec.token_types else None
        self.norm = _norm(tower, shapes)
        self.dropout = nn.Dropout(tower.dropout)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Ids `[B,T]` to `[G,B,T,D]`; no sentence types mean the first type everywhere."""
        tokens = input_ids.shape[1]
        if tokens > self.spec.positions:
            raise DataError(f"a text of {tokens} tokens for a model of at most {self.spec.positions}: truncate it")
        x = _look_up(self.word, input_ids)
        if self.token_type is not None:
            types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
            x = x + _look_up(self.token_type, types)
        position = self.position[..., :tokens, :]
        x = x + position.view(-1, 1, *position.shape[-2:])
        y: Tensor = self.dropout(self.norm(x))
        return y


def _look_up(table: Tensor, ids: Tensor) -> Tensor:
    # [V,D] or [M,V,D] at [B,T] -> [G,B,T,D]
    return F.embedding(ids, table)[None] if table.ndim == 2 else table[:, ids]
