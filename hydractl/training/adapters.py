"""One network made an ensemble: what members change of it, and how they start out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import get_args

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.slots import ADAPTER, KEPT, is_adapted, slots, stored_shape
from hydractl.checkpoint.spec import AdaptedPart, Adapter, ModelSpec
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import OptionError
from hydractl.training.classifier import held
from hydractl.training.ensembles import Ensemble
from hydractl.training.order import MEMBERS, derived_seed
from hydractl.training.recipe import Recipe
from hydractl.training.selection import first_trained


@dataclass(frozen=True)
class Start:
    """An adapter, and its tensors `[M,...]` at the start, of their names and shapes."""

    adapter: Adapter
    draw: Callable[[str, tuple[int, ...]], Tensor]


def spread(checkpoint: Checkpoint, ensemble: Ensemble, recipe: Recipe, seed: int) -> Checkpoint:
    """The checkpoint as M members, who share all but what the method gives each for itself.

    Raises:
        OptionError: it has several members already or no classifier, or fewer than two are asked for.
    """
    _require_one_network(checkpoint, ensemble)
    method, members = ensemble.method, ensemble.members
    generator = torch.Generator().manual_seed(derived_seed(seed, MEMBERS))
    start = method.start(checkpoint, ensemble, recipe, generator)
    spec = replace(checkpoint.spec, adapter=start.adapter)
    heads: KeptHeads = {tower: tuple(kept * members for kept in layers) for tower, layers in checkpoint.heads.items()}
    tensors, own = dict(checkpoint.tensors), set()
    for name, slot in slots(spec).items():
        if slot.group not in (ADAPTER, *method.copied):
            continue
        own.add(name)
        if name in checkpoint.tensors:  # what the network has there, once for each member
            tensors[name] = _copies(checkpoint.tensors[name], members, slot.shape)
        else:
            drawn = start.draw(name, stored_shape(slot, spec, heads, shared=False))
            weight = checkpoint.tensors[f"{name.rpartition('.')[0]}.weight"]
            tensors[name] = held(drawn.to(weight.dtype) if drawn.is_floating_point() else drawn)
    return replace(checkpoint, spec=spec, heads=heads, shared=frozenset(slots(spec)) - own, tensors=tensors)


def _require_one_network(checkpoint: Checkpoint, ensemble: Ensemble) -> None:
    if checkpoint.members > 1:
        raise OptionError(
            f"{checkpoint.name}: has {checkpoint.members} members: {ensemble.kind} starts from one network"
        )
    if ensemble.members < 2:
        raise OptionError(f"`members` {ensemble.members}: an ensemble has at least two")
    if checkpoint.spec.task == "zero-shot":
        raise OptionError(f"{checkpoint.name}: is a zero-shot model: {ensemble.kind} needs a classifier")


def _copies(tensor: LazyTensor, members: int, shape: tuple[int, ...]) -> LazyTensor:
    # An output bias has an axis of members already, of one.
    shape = tensor.shape if tensor.shape != (1, *shape) else shape
    return LazyTensor((members, *shape), tensor.dtype, lambda: torch.stack([tensor.load().reshape(shape)] * members))


def low_rank(spec: ModelSpec, ensemble: Ensemble, recipe: Recipe, generator: torch.Generator) -> Start:
    """LoRA-Ensemble: deltas B A of the maps that the recipe names, q, k, v and o unless it does; B starts at zero.

    Source: Muehlematter et al. 2024, arXiv 2405.14438.
    """

    def draw(name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith(".lora_b"):
            return torch.zeros(shape, dtype=torch.float64)
        return torch.randn(shape, generator=generator, dtype=torch.float64) / max(shape[-1], 1) ** 0.5

    scale = 1.0 if ensemble.alpha is None else ensemble.alpha / ensemble.rank
    first = first_trained(spec, recipe.freeze_below)
    return Start(Adapter("low-rank", recipe.lora_parts, first, ensemble.rank, scale), draw)


def rank_one(spec: ModelSpec, recipe: Recipe, generator: torch.Generator) -> Start:
    """BatchEnsemble: factors of every linear map, drawn around one, which leaves a network's function almost as it is.

    Source: Wen et al. 2020, arXiv 2002.06715.
    """

    def draw(name: str, shape: tuple[int, ...]) -> Tensor:
        return 1 + recipe.factor_width * torch.randn(shape, generator=generator, dtype=torch.float64)

    table = slots(spec)
    parts = tuple(
        part
        for part in get_args(AdaptedPart)
        if any(is_adapted(Adapter("rank-one", (part,)), name, slot) for name, slot in table.items())
    )
    return Start(Adapter("rank-one", parts, first_trained(spec, recipe.freeze_below)), draw)


def kept_features(spec: ModelSpec, ensemble: Ensemble, recipe: Recipe, generator: torch.Generator) -> Start:
    """MaskEnsembles: of each MLP's features every member keeps as many, others in each layer.

    Source: Durasov et al. 2021, arXiv 2012.08334.
    """
    (tower,) = spec.towers
    kept = features_kept(tower.mlp_width, ensemble.members, ensemble.mask_scale)

    def draw(name: str, shape: tuple[int, ...]) -> Tensor:
        assert name.endswith(f".{KEPT}")
        return masks(tower.mlp_width, ensemble.members, ensemble.mask_scale, generator)

    adapter = Adapter("kept-features", ("mlp.fc1", "mlp.fc2"), first_trained(spec, recipe.freeze_below), kept)
    return Start(adapter, draw)


def features_kept(features: int, members: int, scale: float) -> int:
    """How many features a member keeps so that the members together are to be expected to need all of them."""
    expected = round(features / (scale * (1 - (1 - 1 / scale) ** members)))
    return min(features, max(expected, ceil(features / members)))


def masks(features: int, members: int, scale: float, generator: torch.Generator) -> Tensor:
    """The features that each member keeps, `[M,k]` int32, ascending, all of them kept by some member.

    As published, members draw from `scale` times as many places as they keep features, and a place that nobody
    drew is none; of such draws the first is taken that leaves as many places as there are features.
    """
    kept = features_kept(features, members, scale)
    places = max(features, round(kept * scale))
    while True:  # of thousands of features one draw in fifty will do
        drawn = torch.stack([torch.randperm(places, generator=generator)[:kept] for _ in range(members)])
        used, numbers = drawn.unique(return_inverse=True)
        if len(used) == features:
            return numbers.sort(1).values.to(torch.int32)
