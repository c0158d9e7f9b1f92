"""Unstructured pruning: weights are set to zero one by one, wherever the network has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hydractl.bounds import real
from hydractl.checkpoint.contents import Checkpoint, require_one_member
from hydractl.checkpoint.slots import linear_weights
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.surgery.weight_methods import Saliencies


def candidates(checkpoint: Checkpoint, towers: Sequence[str] = ()) -> list[str]:
    """The tensors whose weights may go: those of linear maps before the classifier.

    Args:
        towers: names of those to choose from; where empty the first, since saliencies of two towers differ in scale.

    Raises:
        OptionError: a checkpoint of several members.
    """
    require_one_member(checkpoint)
    chosen = tuple(f"{name}." for name in towers or [checkpoint.spec.towers[0].name])
    return [name for name in linear_weights(checkpoint.spec) if name.startswith(chosen)]


def parse_keep(keep: str | float) -> float:
    """The share, 0 to 1, that `89.1%` or a number says.

    Raises:
        OptionError: it is none.
    """
    text = str(keep).strip()
    most = 100 if text.endswith("%") else 1
    share = None if isinstance(keep, bool) else real(text.removesuffix("%"), 0, most)
    if share is None:
        raise OptionError(f"`keep` {text[:40]}: expected a share of the parameters, as in 89.1% or 0.891")
    return share / most


def leaving(keep: str | float, checkpoint: Checkpoint, names: Sequence[str]) -> int:
    """How many weights of the tensors named go, so that this share of all parameters stays.

    Raises:
        OptionError: no share, or a smaller one than the network is without those weights.
    """
    share = parse_keep(keep)
    sizes = {name: prod(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    total, most = sum(sizes.values()), sum(sizes[name] for name in names)
    count = round((1 - share) * total)
    if count > most:
        raise OptionError(f"`keep` {keep}: {1 - most / total:.1%} of the parameters are no such weights, and stay")
    return count


def zero_weights(checkpoint: Checkpoint, found: Saliencies, count: int) -> Checkpoint:
    """The checkpoint with the weights of the lowest saliencies at zero, the first ones among equals.

    Args:
        found: the saliency of every weight there is to choose from, higher = keep.
        count: how many go.
    """
    flat = torch.cat([saliency.flatten() for saliency in found.values()])
    gone = lowest(flat, count).split([saliency.numel() for saliency in found.values()])
    tensors = dict(checkpoint.tensors)
    for name, places in zip(found, gone, strict=True):
        tensors[name] = _zeroed(tensors[name], places.view(found[name].shape).cpu())
    return replace(checkpoint, tensors=tensors, sparse=True)


def lowest(values: Tensor, count: int) -> Tensor:
    """Which of `[N]` numbers are the `count` lowest, the first ones among equals, `[N]` bool."""
    if count == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    limit = values.kthvalue(count).values
    below = values < limit
    equal = (values == limit).nonzero().flatten()
    below[equal[: count - int(below.sum())]] = True
    return below


def _zeroed(tensor: LazyTensor, places: Tensor) -> LazyTensor:
    return replace(tensor, load=lambda: tensor.load().masked_fill(places, 0))
