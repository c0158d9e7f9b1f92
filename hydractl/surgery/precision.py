"""The precision of a checkpoint's numbers."""

from dataclasses import replace

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import CheckpointError


def with_dtype(checkpoint: Checkpoint, dtype: torch.dtype | None) -> Checkpoint:
    """Returns the checkpoint with every floating-point tensor in `dtype`, converted when read; unchanged if None.

    Raises:
        CheckpointError: when read, a number is too large for `dtype`.
    """
    if dtype is None:
        return checkpoint
    tensors = {
        name: _converted(checkpoint.name, name, tensor, dtype) if tensor.dtype.is_floating_point else tensor
        for name, tensor in checkpoint.tensors.items()
    }
    return replace(checkpoint, tensors=tensors)


def rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the tensor in `dtype`, each number rounded once, to the nearest."""
    if tensor.dtype != torch.float64 or dtype.itemsize > 2:
        return tensor.to(dtype)
    # torch converts float64 to a two-byte type through float32 and so rounds twice. Instead of rounding to float32,
    # digits are cut off, and the last bit is set where any were: the number then lies on the same side of every
    # midpoint between two-byte numbers as before, so the conversion that follows is the only rounding.
    single = tensor.float()
    bits = single.view(torch.int32) - (single.double().abs() > tensor.abs()).int()
    return (bits | (single.double() != tensor).int()).view(torch.float32).to(dtype)


def _converted(where: str, name: str, tensor: LazyTensor, dtype: torch.dtype) -> LazyTensor:
    def load() -> Tensor:
        converted = rounded(tensor.load(), dtype)
        if not torch.isfinite(converted).all():
            raise CheckpointError(f"{where}: {name} holds numbers too large for {dtype}: choose bfloat16 or float32")
        return converted

    return LazyTensor(tensor.shape, dtype, load)
