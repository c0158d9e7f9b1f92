"""Members that start out equal, and their weights as products of factors while they train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import Slot
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import OptionError
from hydractl.model.hydra import Hydra
from hydractl.training.ensembles import Ensemble


@dataclass(frozen=True)
class Layout:
    """How the weights of M members lie in one tensor: side by side along `axis`, or, without one, stacked in front."""

    members: int
    axis: int | None

    def apart(self, weight: Tensor) -> Tensor:
        """`[M, out, in]` of the weights as they are stored."""
        return weight if self.axis is None else torch.stack(weight.chunk(self.members, self.axis))

    def together(self, weights: Tensor) -> Tensor:
        """Back from `[M, out, in]`."""
        return weights if self.axis is None else torch.cat(weights.unbind(), self.axis)


def spread(checkpoint: Checkpoint, ensemble: Ensemble) -> Checkpoint:
    """The checkpoint as M equal members, with a copy each of whatever the method trains per member.

    Raises:
        OptionError: it has several members already or no classifier, or fewer than two are asked for.
    """
    if checkpoint.members > 1:
        raise OptionError(
            f"{checkpoint.name}: has {checkpoint.members} members: {ensemble.kind} starts from one network"
        )
    if ensemble.members < 2:
        raise OptionError(f"`members` {ensemble.members}: an ensemble has at least two")
    if checkpoint.spec.task == "zero-shot":
        raise OptionError(f"{checkpoint.name}: is a zero-shot model: {ensemble.kind} needs a classifier")
    table = checkpoint.slots()
    separate = {name for name, slot in table.items() if slot.group in ensemble.method.own}
    heads = {
        tower: tuple(members * ensemble.members for members in layers) for tower, layers in checkpoint.heads.items()
    }
    tensors = {
        name: _copies(tensor, table[name], ensemble.members) if name in separate else tensor
        for name, tensor in checkpoint.tensors.items()
    }
    return replace(checkpoint, heads=heads, shared=frozenset(table) - separate, tensors=tensors)


def _copies(tensor: LazyTensor, slot: Slot, members: int) -> LazyTensor:
    if not slot.is_attention:
        return LazyTensor((members, *tensor.shape), tensor.dtype, lambda: torch.stack([tensor.load()] * members))
    axis = slot.head_axis or 0
    shape = tuple(n * members if i == axis else n for i, n in enumerate(tensor.shape))
    return LazyTensor(shape, tensor.dtype, lambda: torch.cat([tensor.load()] * members, axis))


def matrices(network: Hydra, checkpoint: Checkpoint, groups: Sequence[str]) -> Iterator[tuple[nn.Module, Layout]]:
    """The modules of some groups whose weight is a matrix of each member's own, each with how members lie in it."""
    for name, slot in checkpoint.slots().items():
        if name.endswith(".weight") and slot.group in groups and 0 not in checkpoint.tensors[name].shape:
            yield network.get_submodule(name.removesuffix(".weight")), Layout(checkpoint.members, slot.head_axis)


def factorise(module: nn.Module, factors: nn.Module, trains: bool, shared_trains: bool) -> None:
    """Makes a module's weight of `factors` and of what members share, for as long as the network trains."""
    parametrize.register_parametrization(module, "weight", factors, unsafe=True)
    factors.requires_grad_(trains)
    module.get_submodule("parametrizations.weight").get_parameter("original").requires_grad_(shared_trains)
