"""A checkpoint as a network that trains in place, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import Slot, slots
from hydractl.inference import load_checkpoint
from hydractl.model.hydra import Hydra
from hydractl.training.classifier import held
from hydractl.training.recipe import Recipe
from hydractl.training.selection import trained_names


def build_network(checkpoint: Checkpoint, recipe: Recipe, groups: Sequence[str] = ()) -> Hydra:
    """The network on the CPU, in float32 or wider, with the recipe's dropout and only what trains unfrozen.

    Args:
        groups: of tensors, if no others train than these whatever the recipe says.
    """
    spec = checkpoint.spec
    if recipe.dropout >= 0:
        spec = replace(spec, towers=tuple(replace(tower, dropout=recipe.dropout) for tower in spec.towers))
    model = load_checkpoint(replace(checkpoint, spec=spec), "cpu", training_dtype(checkpoint))
    table = slots(checkpoint.spec)
    chosen = {
        name
        for name in trained_names(checkpoint.spec, recipe.train_only, recipe.freeze_below)
        if not groups or table[name].group in groups
    }
    for name, parameter in model.named_parameters():
        # A layer without heads has tensors without numbers, which no gradient reaches.
        parameter.requires_grad_(name in chosen and parameter.numel() > 0)
    return model


def training_dtype(checkpoint: Checkpoint) -> torch.dtype:
    """float64 where all weights are that wide, else float32."""
    dtypes = {tensor.dtype for tensor in checkpoint.tensors.values() if tensor.dtype.is_floating_point}
    return torch.float64 if dtypes == {torch.float64} else torch.float32


def trained_parameters(model: Hydra) -> Iterator[tuple[str, Slot, nn.Parameter]]:
    """Every parameter that trains, with the tensor it belongs to."""
    assert model.origin is not None
    table = model.origin.slots()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            yield name, table[name], parameter


def network_checkpoint(model: Hydra, checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint a network was built from with the numbers it holds now, in the checkpoint's own dtypes."""
    numbers = model.state_dict()
    tensors = {name: held(numbers[name].cpu().to(tensor.dtype)) for name, tensor in checkpoint.tensors.items()}
    # A temperature belongs to the weights it was fitted to.
    return replace(checkpoint, tensors=tensors, temperature=None)
