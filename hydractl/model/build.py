"""A checkpoint as the model that it holds, and back."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import OptionError
from hydractl.model.hydra import Hydra


def from_checkpoint(
    checkpoint: Checkpoint, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Hydra:
    """The model a checkpoint holds, in eval mode, its weights read once.

    Args:
        dtype: of the weights; the stored one where left out, or the widest of those.

    Raises:
        CheckpointError: a tensor cannot be read or holds NaN.
    """
    wanted = dtype or checkpoint.dtype
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    model = Hydra(checkpoint.spec, checkpoint.heads, checkpoint.shared, shapes)
    state = {
        name: tensor.load().to(device, wanted if tensor.dtype.is_floating_point else tensor.dtype)
        for name, tensor in checkpoint.tensors.items()
    }
    model.load_state_dict(state, assign=True)
    model.labels = checkpoint.labels
    model.temperature = checkpoint.temperature or 1.0
    model.acceptance = checkpoint.acceptance
    model.origin = replace(checkpoint, tensors={})
    return model.eval().requires_grad_(False)


def to_checkpoint(model: Hydra) -> Checkpoint:
    """The checkpoint that `model` is now: what it was built from, with the numbers it holds.

    Raises:
        OptionError: the model was not built from a checkpoint.
    """
    if model.origin is None:
        raise OptionError("this model was not built from a checkpoint: there is nothing to save it as")
    tensors = {name: _held(tensor) for name, tensor in model.state_dict().items()}
    return replace(model.origin, tensors=tensors)


def _held(tensor: Tensor) -> LazyTensor:
    return LazyTensor(tuple(tensor.shape), tensor.dtype, lambda: tensor.detach().cpu())
