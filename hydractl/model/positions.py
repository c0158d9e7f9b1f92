"""The places of tokens in attention: which tokens see each other, and how queries and keys are turned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import log, pi
from typing import Any

import torch
from torch import Tensor

from hydractl.checkpoint.spec import ImageEmbeddings, Relative, TowerSpec


@dataclass(frozen=True)
class Positions:
    """The places of the tokens in a layer, and what depends on them.

    Attributes:
        width: of a head.
        causal: tokens see those before them only.
        reach: tokens see only those at most so many places away; None for all.
        base: of the speeds at which queries and keys are turned; None if they are not.
        grid: rows and columns of an image's patches; None for texts.
        prefix: the number of tokens before the patches.
        relative: the distances that heads tell apart.
    """

    width: int
    causal: bool
    reach: int | None = None
    base: float | None = None
    grid: tuple[int, int] | None = None
    prefix: int = 0
    relative: Relative | None = None

    @property
    def is_plain(self) -> bool:
        """True if scores are products of queries and keys, wherever their tokens stand."""
        return self.reach is None and self.base is None and self.relative is None

    def bias(self, table: Tensor, tokens: int) -> Tensor:
        """Returns what heads add to their scores, `[1,H,T,T]`, by their tables of distances `[H,distances]`."""
        return table[:, _cached(_distances)(self, tokens, table.device)][None]

    def allowed(self, mask: Tensor | None, tokens: int, device: torch.device) -> Tensor | None:
        """Returns which tokens each token may look at, `[1 or B,1,1 or T,T]`, given those that count `[B,T]`."""
        # A graph for texts of any length must not depend on one.
        near = self.reach is None or (not torch.compiler.is_compiling() and tokens <= self.reach + 1)
        if near and not self.causal:
            return None if mask is None else mask[:, None, None]
        seen = _cached(_seen)(self.causal, self.reach, tokens, device)
        if mask is None:
            return seen[None, None]
        allowed = mask[:, None, None] & seen
        # Padding far from all that counts sees itself: a softmax of nothing has no value.
        return allowed if near else allowed | torch.eye(tokens, dtype=torch.bool, device=device)

    def turn(self, x: Tensor) -> Tensor:
        """Turns queries or keys `[B,T,...,K]`, two halves of K against each other."""
        if self.base is None:
            return x
        shape = (1, x.shape[1], *(1,) * (x.ndim - 3), x.shape[-1] // 2)
        cos, sin = (table.view(shape) for table in _cached(_angles)(self, x.shape[1], x.device, x.dtype))
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def positions_of(tower: TowerSpec, layer: int) -> Positions:
    """Returns the positions of a layer."""
    rotary, embeddings = tower.rotary, tower.embeddings
    base, local = None if rotary is None else rotary.base, tower.local
    reach = None
    if local is not None and layer in local.at:
        base, reach = local.base or base, local.reach
    if isinstance(embeddings, ImageEmbeddings):
        return Positions(
            tower.head_width,
            tower.causal,
            reach,
            base,
            grid=embeddings.grid,
            prefix=embeddings.prefix,
            relative=tower.relative,
        )
    return Positions(tower.head_width, tower.causal, reach, base, relative=tower.relative)


def _cached(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that remembers its last results, or in a graph that is being traced the function itself."""
    return function if torch.compiler.is_compiling() else _remembering(function)


@lru_cache
def _remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    @lru_cache(maxsize=16)
    def remembered(*arguments: Any) -> Any:
        # Training may go on with what an evaluation computed first.
        with torch.inference_mode(False), torch.no_grad():
            return function(*arguments)

    return remembered


def _seen(causal: bool, reach: int | None, tokens: int, device: torch.device) -> Tensor:
    """Returns `[T,T]`, true where a row's token sees a column's."""
    places = torch.arange(tokens, device=device)
    ahead = places - places[:, None]
    seen = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
    return seen if reach is None else seen & (ahead.abs() <= reach)


def _angles(positions: Positions, tokens: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns cosines and sines, `[T,K/2]`, by the operations of transformers and so with its rounding."""
    assert positions.base is not None
    if positions.grid is None:
        angles = torch.arange(tokens, device=device).float()[:, None] * _speeds(
            positions.base, positions.width // 2, device
        )
        return angles.cos().to(dtype), angles.sin().to(dtype)
    centres = [(torch.arange(0.5, side, device=device) / side) * 2.0 - 1.0 for side in positions.grid]
    places = torch.stack(torch.meshgrid(*centres, indexing="ij"), -1).flatten(0, 1)  # [patches,2]
    speeds = _speeds(positions.base, positions.width // 4, device).to(torch.promote_types(dtype, torch.float32))
    angles = (2 * pi * places[:, :, None] * speeds).flatten(1)
    angles = torch.cat([angles.new_zeros(positions.prefix, angles.shape[1]), angles])
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _speeds(base: float, count: int, device: torch.device) -> Tensor:
    return 1.0 / base ** (torch.arange(count, dtype=torch.float32, device=device) / count)


def _distances(positions: Positions, tokens: int, device: torch.device) -> Tensor:
    """Returns the number of the distance from a row's token to a column's, `[T,T]`, as BEiT and T5 count them."""
    assert positions.relative is not None
    if positions.grid is None:
        places = torch.arange(tokens, device=device)
        return _buckets(places - places[:, None], positions.relative)
    rows, columns = positions.grid
    sides = torch.meshgrid(torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij")
    down, right = (side.flatten()[:, None] - side.flatten() for side in sides)
    count = (2 * rows - 1) * (2 * columns - 1)
    table = torch.empty(tokens, tokens, dtype=torch.long, device=device)
    table[1:, 1:] = (down + rows - 1) * (2 * columns - 1) + right + columns - 1
    table[0, :], table[:, 0], table[0, 0] = count, count + 1, count + 2
    return table


def _buckets(ahead: Tensor, relative: Relative) -> Tensor:
    half = relative.buckets // 2
    near, distance = half // 2, ahead.abs()
    far = (distance.float() / near).log() / log(relative.most / near) * (half - near)
    far = (near + far.clamp(min=0).long()).clamp(max=half - 1)
    return (ahead > 0) * half + torch.where(distance < near, distance, far)
