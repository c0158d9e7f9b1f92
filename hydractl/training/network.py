"""A checkpoint as a network that trains in place, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

import torch
from torch import Tensor, nn

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import Slot
from hydractl.inference import load_checkpoint
from hydractl.model.hydra import Hydra
from hydractl.training.classifier import held
from hydractl.training.recipe import Recipe
from hydractl.training.selection import trained_names


def build_network(checkpoint: Checkpoint, recipe: Recipe) -> Hydra:
    """The network on the CPU, in float32 or wider, with the recipe's dropout and only what trains unfrozen."""
    spec = checkpoint.spec
    if recipe.dropout >= 0:
        spec = replace(spec, towers=tuple(replace(tower, dropout=recipe.dropout) for tower in spec.towers))
    dtypes = [tensor.dtype for tensor in checkpoint.tensors.values()]
    dtype = torch.float64 if all(dtype == torch.float64 for dtype in dtypes) else torch.float32
    model = load_checkpoint(replace(checkpoint, spec=spec), "cpu", dtype)
    chosen = trained_names(checkpoint.spec, recipe.train_only, recipe.freeze_below)
    for name, parameter in model.named_parameters():
        # A layer without heads has tensors without numbers, which no gradient reaches.
        parameter.requires_grad_(name in chosen and parameter.numel() > 0)
    return model


def trained_parameters(model: Hydra) -> Iterator[tuple[str, Slot, nn.Parameter]]:
    """Every parameter that trains, with the tensor it belongs to."""
    assert model.origin is not None
    table = model.origin.slots()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            tensor = tensor_name(name)
            yield tensor, table[tensor], parameter


def tensor_name(parameter: str) -> str:
    """The tensor a parameter belongs to: itself, or the one that it is a factor of."""
    module, mark, rest = parameter.partition(".parametrizations.")
    return f"{module}.{rest.split('.')[0]}" if mark else parameter


def network_checkpoint(model: Hydra, checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint a network was built from with the numbers it holds now, in the checkpoint's own dtypes.

    Where a tensor is made of factors while it trains, their product is what the file gets.
    """
    numbers: dict[str, Tensor] = {name: attrgetter(name)(model).detach().cpu() for name in checkpoint.tensors}
    tensors = {name: held(tensor.to(checkpoint.tensors[name].dtype)) for name, tensor in numbers.items()}
    # A temperature belongs to the weights it was fitted to.
    return replace(checkpoint, tensors=tensors, temperature=None)
