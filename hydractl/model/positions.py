"""The places of tokens in attention: which tokens see each other, and how queries and keys are turned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import log, pi
from typing import Any

import torch
from torch import Tensor

from hydractl.checkpoint.tower_spec import Disentangled, ImageEmbeddings, Relative, Rotary, TowerSpec


@dataclass(frozen=True)
class Terms:
    """Terms that distances of tokens add to scores, head by head; S is 1, or one for each member."""

    numbers: Tensor | None = None  # `[S,H,distances]`, added to scores
    keys: Tensor | None = None  # `[S,H,distances,K]`, multiplied by queries and added
    queries: Tensor | None = None  # `[S,H,distances,K]`, multiplied by keys and added
    trained: bool = False  # they depend on parameters that require gradients

    def each(self, change: Callable[[Tensor], Tensor]) -> Terms:
        """Returns the terms after a change of every tensor."""
        parts = (self.numbers, self.keys, self.queries)
        numbers, keys, queries = (None if term is None else change(term) for term in parts)
        return Terms(numbers, keys, queries, self.trained)

    @property
    def all(self) -> list[Tensor]:
        """The terms that are not None."""
        return [term for term in (self.numbers, self.keys, self.queries) if term is not None]


@dataclass(frozen=True)
class Positions:
    """The places of the tokens in a layer, and what depends on them."""

    width: int  # of a head
    causal: bool  # tokens see those before them only
    reach: int | None = None  # tokens see only those at most so many places away; None for all
    rotary: Rotary | None = None  # how queries and keys are turned; None if they are not
    grid: tuple[int, int] | None = None  # rows and columns of an image's patches; None for texts
    prefix: int = 0  # the number of tokens before the patches
    relative: Relative | None = None  # the distances that heads have numbers for
    disentangled: Disentangled | None = None  # the distances that queries and keys meet
    scale: float = field(init=False)  # the factor of products of queries and keys

    @property
    def is_plain(self) -> bool:
        """True if scores are products of queries and keys, wherever their tokens stand."""
        return self.reach is None and self.rotary is None and self.relative is None and self.disentangled is None

    def __post_init__(self) -> None:
        scale = self.width**-0.5
        if self.disentangled is not None:  # transformers rounds it
            products = self.width * (1 + len(self.disentangled.parts))
            scale = 1 / torch.tensor(products, device="cpu").float().sqrt().item()
        object.__setattr__(self, "scale", float(scale))

    def bias(self, terms: Terms, q: Tensor, k: Tensor) -> Tensor:
        """Returns what is added to scores, `[1 or N,H,T,T]`, given queries and keys `[N,T,H,K]`."""
        tokens, terms = k.shape[1], terms.each(lambda term: term.to(q.dtype))
        if terms.numbers is not None:
            bias = terms.numbers[:, :, _cached(_distances)(self, tokens, k.device)]
            # `repeat_interleave` would fix the batch size of an ONNX graph.
            each = bias[:, None].expand(-1, q.shape[0] // bias.shape[0], *[-1] * 3)
            return each.flatten(0, 1) if bias.shape[0] > 1 else bias
        ahead, behind = _cached(_in_order)(self, tokens, k.device)
        parts = []
        for term, order, x in ((terms.keys, ahead, q), (terms.queries, behind, k)):
            if term is None:
                continue
            grouped = x.unflatten(0, (term.shape[0], -1)).movedim(3, 1)  # [S,H,B,T,K]
            # Only distances between these tokens count, in the order in which `_skewed` needs them.
            products = grouped.flatten(2, 3) @ term.index_select(2, order).mT  # [S,H,B*T,2*T]
            scores = _skewed(products.unflatten(2, (-1, tokens)))
            parts.append(scores if x is q else scores.mT)
        return (parts[0] if len(parts) == 1 else parts[0] + parts[1]).transpose(1, 2).flatten(0, 1)

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
        # Isolated padding attends to itself; softmax over no tokens is NaN.
        return allowed if near else allowed | torch.eye(tokens, dtype=torch.bool, device=device)

    def turn(self, x: Tensor) -> Tensor:
        """Turns queries or keys `[B,T,...,K]`, two halves of K against each other, or neighbours."""
        if self.rotary is None:
            return x
        shape = (1, x.shape[1], *(1,) * (x.ndim - 3), x.shape[-1] // 2)
        cos, sin = (table.view(shape) for table in _cached(_angles)(self, x.shape[1], x.device, x.dtype))
        first, second = (x[..., ::2], x[..., 1::2]) if self.rotary.interleaved else x.chunk(2, -1)
        pair = [first * cos - second * sin, second * cos + first * sin]
        return torch.stack(pair, -1).flatten(-2) if self.rotary.interleaved else torch.cat(pair, -1)


def positions_of(tower: TowerSpec, layer: int) -> Positions:
    """Returns the positions of a layer."""
    rotary, embeddings = tower.rotary, tower.embeddings
    local, reach = tower.local, None
    if local is not None and layer in local.at:
        rotary = rotary if rotary is None or local.base is None else replace(rotary, base=local.base)
        reach = local.reach
    positions = Positions(tower.head_width, tower.causal, reach, rotary, None, 0, tower.relative, tower.disentangled)
    if isinstance(embeddings, ImageEmbeddings):
        return replace(positions, grid=embeddings.grid, prefix=embeddings.prefix)
    return positions


def _cached(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that remembers its last results; the function itself while a graph is traced or recorded."""
    # A recorded graph would go on reading memory of results that are forgotten.
    recorded = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    return function if torch.compiler.is_compiling() or recorded else _remembering(function)


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
    """Returns cosines and sines, `[T,K/2]`, by the operations of transformers or timm and so with their rounding."""
    rotary, quarter = positions.rotary, positions.width // 4
    assert rotary is not None
    if positions.grid is None:
        speeds = _speeds(rotary.base, positions.width // 2, device)
        angles = torch.arange(tokens, device=device).float()[:, None] * speeds
        return angles.cos().to(dtype), angles.sin().to(dtype)
    if rotary.places == "steps":
        sides = [torch.arange(side, device=device).float() + rotary.offset for side in positions.grid]
        if rotary.extent is not None:
            sides = [x / side * most for x, side, most in zip(sides, positions.grid, rotary.extent, strict=True)]
    else:
        sides = [(torch.arange(0.5, side, device=device) / side) * 2.0 - 1.0 for side in positions.grid]
    places = torch.stack(torch.meshgrid(*sides, indexing="ij"), -1).flatten(0, 1)[:, :, None]  # [patches,2,1]
    places = places.flip(1) if rotary.columns_first else places
    wide = torch.promote_types(dtype, torch.float32)
    if rotary.places == "centres":
        turns = 2 * pi * places * _speeds(rotary.base, quarter, device).to(wide)
    elif rotary.places == "periods":
        periods = rotary.base ** (2.0 * torch.arange(quarter, device=device) / (positions.width // 2))
        turns = 2 * pi * places.to(wide) / periods.to(wide)
    else:
        turns = places * _speeds(rotary.base, quarter, device)
    angles = turns.flatten(1)
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
    for part, number in ((table[0, :], count), (table[:, 0], count + 1), (table[0, 0], count + 2)):
        part.fill_(number)  # an assignment would copy a number from the processor, which no recorded graph may
    return table


def _buckets(ahead: Tensor, relative: Relative) -> Tensor:
    half = relative.buckets // 2
    near, distance = half // 2, ahead.abs()
    far = (distance.float() / near).log() / log(relative.most / near) * (half - near)
    far = (near + far.clamp(min=0).long()).clamp(max=half - 1)
    return (ahead > 0) * half + torch.where(distance < near, distance, far)


def _sides(behind: Tensor, spec: Disentangled) -> Tensor:
    """Returns the numbers of distances, by the operations of transformers and so with its rounding."""
    if spec.most is not None:
        middle, distance = spec.distances // 2, behind.abs()
        most = torch.tensor((spec.most - 1) / middle)
        far = ((distance.clamp(min=1) / middle).log() / most.log() * (middle - 1)).ceil() + middle
        behind = torch.where(distance <= middle, behind, (far * behind.sign()).long())
    return (behind + spec.distances).clamp(0, 2 * spec.distances - 1)


def _in_order(positions: Positions, tokens: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns the numbers of the distances of T tokens, `[2*T]` each: from T - 1 behind on, and from T - 1 ahead on."""
    assert positions.disentangled is not None
    places = torch.arange(2 * tokens, device=device) - (tokens - 1)
    return _sides(-places, positions.disentangled), _sides(places, positions.disentangled)


def _skewed(x: Tensor) -> Tensor:
    """Returns `[...,T,T]`, a view of `[...,T,2*T]`: of each row as many as there are tokens, one further left a row."""
    tokens = x.shape[-2]
    rows = x.flatten(-2)[..., tokens - 1 : tokens - 1 + tokens * (2 * tokens - 1)]
    return rows.unflatten(-1, (tokens, 2 * tokens - 1))[..., :tokens]
