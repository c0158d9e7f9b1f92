"""Changes the numbers of a checkpoint: their precision, and the scale and shift of each class."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from hydractl.checkpoint.calibration import NOT_CALIBRATED
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import CheckpointError, OptionError
from hydractl.tasks.all_tasks import find_task

CLASSIFIERS = ("classifier", "distillation_classifier")


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


def require_exact_classifier(checkpoint: Checkpoint) -> None:
    """Raises OptionError for a network without a classifier of its own, and for one whose weights are rounded."""
    find_task(checkpoint.spec.task).require_classifier(
        f"{checkpoint.name}: is zero-shot, and its classes may change, so they have no scales: choose `method` "
        "temperature"
    )
    if checkpoint.dtype.itemsize < torch.float32.itemsize:
        raise OptionError(
            f"{checkpoint.name}: its classifier is in {checkpoint.dtype}, which would round scales: choose `method` "
            "temperature, or write it in float32 first"
        )


def with_scaled_classes(checkpoint: Checkpoint, scale: Sequence[float], shift: Sequence[float]) -> Checkpoint:
    """Returns the network whose every member has logits `scale * z + shift` in place of z.

    Args:
        scale: `[C]`.
        shift: `[C]`, nats.

    Raises:
        OptionError: see `require_exact_classifier`.
    """
    require_exact_classifier(checkpoint)
    factors, terms = torch.tensor(scale, dtype=torch.float64), torch.tensor(shift, dtype=torch.float64)
    tensors = dict(checkpoint.tensors)
    for name in tensors:
        linear, _, part = name.rpartition(".")
        if linear in CLASSIFIERS:
            tensors[name] = _changed(tensors[name], part, (factors, terms), f"{linear}.s" in tensors)
    return replace(checkpoint, tensors=tensors, calibration=NOT_CALIBRATED)


def _changed(tensor: LazyTensor, part: str, change: tuple[Tensor, Tensor], factored: bool) -> LazyTensor:
    """Returns one tensor of a classifier; in a `factored` one, s scales the rows of all members' products."""
    scale, shift = change
    if part == "bias":
        return _computed(tensor, lambda numbers: numbers * scale + shift)
    if part == "s":
        return _computed(tensor, lambda numbers: numbers * scale)
    if part == "lora_b" or (part == "weight" and not factored):
        return _computed(tensor, lambda numbers: numbers * scale[:, None])
    return tensor


def _computed(tensor: LazyTensor, change: Callable[[Tensor], Tensor]) -> LazyTensor:
    return LazyTensor(tensor.shape, tensor.dtype, lambda: change(tensor.load().double()).to(tensor.dtype))
