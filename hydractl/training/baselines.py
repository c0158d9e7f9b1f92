"""LoRA- and BatchEnsemble over one dense checkpoint, trained as factors of the weights that a file of ours stores.

While it trains, a weight per member is made of a shared one and small factors; the file gets the products, so what
was trained and what runs are the same function.

Source: LoRA-Ensemble, arXiv 2405.14438; BatchEnsemble, arXiv 2002.06715; [HE] C for what they are compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import Slot
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import OptionError
from hydractl.model.hydra import Hydra
from hydractl.training.network import build_network
from hydractl.training.recipe import Recipe
from hydractl.training.stream import MEMBERS, derived_seed

Kind = Literal["lora-ensemble", "batch-ensemble"]


@dataclass(frozen=True)
class Baseline:
    """An ensemble trained from one dense checkpoint.

    `rank` and `alpha` are LoRA's: the delta is B A alpha / rank, with alpha the rank unless given.
    """

    kind: Kind
    members: int
    rank: int = 4
    alpha: float | None = None

    @property
    def scale(self) -> float:
        """What LoRA's delta is multiplied by."""
        return 1.0 if self.alpha is None else self.alpha / self.rank


def spread(checkpoint: Checkpoint, baseline: Baseline) -> Checkpoint:
    """The checkpoint as M equal members, with a copy each of whatever the baseline trains per member.

    Raises:
        OptionError: it has several members already, or fewer than two are asked for.
    """
    if checkpoint.members > 1:
        raise OptionError(
            f"{checkpoint.name}: has {checkpoint.members} members: {baseline.kind} starts from one network"
        )
    if baseline.members < 2:
        raise OptionError(f"--members {baseline.members}: an ensemble has at least two")
    if checkpoint.spec.task == "zero-shot":
        raise OptionError(f"{checkpoint.name}: is a zero-shot model: {baseline.kind} needs a classifier")
    table = checkpoint.slots()
    separate = {name for name, slot in table.items() if _is_own(name, slot, baseline.kind)}
    heads = {
        tower: tuple(members * baseline.members for members in layers) for tower, layers in checkpoint.heads.items()
    }
    tensors = {
        name: _copies(tensor, table[name], baseline.members) if name in separate else tensor
        for name, tensor in checkpoint.tensors.items()
    }
    return replace(checkpoint, heads=heads, shared=frozenset(table) - separate, tensors=tensors)


def build_baseline(checkpoint: Checkpoint, recipe: Recipe, baseline: Baseline, seed: int) -> Hydra:
    """The network of a spread checkpoint with its factors in place, only what the baseline trains unfrozen.

    LoRA trains the deltas of q, k, v and o and each member's classifier; BatchEnsemble trains everything the recipe
    lets train, the weight that members share, their factors and their biases.
    """
    network = build_network(checkpoint, recipe)
    generator = torch.Generator().manual_seed(derived_seed(seed, MEMBERS))
    if baseline.kind == "lora-ensemble":
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and name.startswith("classifier."))
    for module, axis in _factorised(network, checkpoint, baseline.kind):
        weight, trains = module.weight, module.weight.requires_grad
        lora = baseline.kind == "lora-ensemble"
        factors = LoraDelta(weight, axis, baseline, generator) if lora else RankOne(weight, axis, baseline.members)
        parametrize.register_parametrization(module, "weight", factors, unsafe=True)
        for parameter in module.parametrizations.weight.parameters():
            parameter.requires_grad_(lora or trains)
        if lora:
            module.parametrizations.weight.original.requires_grad_(False)
    return network


class LoraDelta(nn.Module):
    """`W_m + B_m A_m * scale` for the members' weights side by side along `axis`; B starts at zero."""

    def __init__(self, weight: Tensor, axis: int, baseline: Baseline, generator: torch.Generator) -> None:
        super().__init__()
        self.axis, self.members, self.scale = axis, baseline.members, baseline.scale
        rows, columns = _apart(weight, axis, self.members).shape[1:]
        a = torch.randn((self.members, baseline.rank, columns), generator=generator, dtype=weight.dtype)
        self.a = nn.Parameter(a / columns**0.5)
        self.b = nn.Parameter(torch.zeros(self.members, rows, baseline.rank, dtype=weight.dtype))

    def forward(self, weight: Tensor) -> Tensor:
        """The weights as the network takes them."""
        return weight + _together(self.b @ self.a * self.scale, self.axis)


class RankOne(nn.Module):
    """`W * s_m r_m^T` for M members of one shared W, in the layout of the members' weights."""

    def __init__(self, weight: Tensor, axis: int, members: int) -> None:
        super().__init__()
        self.axis, self.members = axis, members
        rows, columns = _apart(weight, axis, members).shape[1:]
        self.s = nn.Parameter(torch.ones(members, rows, 1, dtype=weight.dtype))
        self.r = nn.Parameter(torch.ones(members, 1, columns, dtype=weight.dtype))

    def forward(self, shared: Tensor) -> Tensor:
        """The weights as the network takes them, of the one that members share."""
        return _together(shared * self.s * self.r, self.axis)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The shared weight of members that are all equal."""
        return _apart(weight, self.axis, self.members)[0].clone()


STACKED = -1  # an axis of members in front, as all but attention is stored


def _apart(weight: Tensor, axis: int, members: int) -> Tensor:
    """`[M, out, in]` of the members' weights as they are stored."""
    if axis == STACKED:
        return weight
    return torch.stack(weight.chunk(members, axis))


def _together(weights: Tensor, axis: int) -> Tensor:
    """Back from `[M, out, in]`."""
    return weights if axis == STACKED else torch.cat(weights.unbind(), axis)


def _is_own(name: str, slot: Slot, kind: Kind) -> bool:
    """Whether each member has its own of a tensor."""
    if kind == "lora-ensemble":
        return slot.group in ("attention", "classifier")
    return slot.group in ("attention", "mlp", "pooler", "classifier")


def _factorised(network: Hydra, checkpoint: Checkpoint, kind: Kind) -> Iterator[tuple[Any, int]]:
    for name, slot in checkpoint.slots().items():
        is_matrix = name.endswith(".weight") and _is_own(name, slot, kind)
        if is_matrix and (kind == "batch-ensemble" or slot.is_attention) and checkpoint.tensors[name].shape[0]:
            axis = STACKED if slot.head_axis is None else slot.head_axis
            yield network.get_submodule(name.removesuffix(".weight")), axis


def _copies(tensor: LazyTensor, slot: Slot, members: int) -> LazyTensor:
    if not slot.is_attention:
        return LazyTensor((members, *tensor.shape), tensor.dtype, lambda: torch.stack([tensor.load()] * members))
    axis = slot.head_axis or 0
    shape = tuple(n * members if i == axis else n for i, n in enumerate(tensor.shape))
    return LazyTensor(shape, tensor.dtype, lambda: torch.cat([tensor.load()] * members, axis))
