"""Builds models: from a checkpoint and back, without some heads, or a second time."""

from collections.abc import Mapping, Set
from dataclasses import replace

import torch
from torch import Tensor

from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, without
from hydractl.checkpoint.layout import Layout, remaining
from hydractl.checkpoint.slots import slots
from hydractl.checkpoint.tensors import LazyTensor, TensorMap
from hydractl.errors import OptionError
from hydractl.model.hydra import Hydra
from hydractl.model.ood_head import OodHead


def from_checkpoint(
    checkpoint: Checkpoint, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Hydra:
    """Returns the model in a checkpoint, in eval mode; its weights are read once.

    Args:
        dtype: of the weights. Default: the stored one, the widest if there are several.

    Raises:
        CheckpointError: a tensor cannot be read or holds NaN.
    """
    model_dtype = dtype or checkpoint.dtype
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    model = Hydra(checkpoint.spec, checkpoint.layout, shapes)
    state = {name: tensor.load().to(device, model_dtype) for name, tensor in checkpoint.tensors.items()}
    model.load_state_dict(state, assign=True)
    model.labels = checkpoint.labels
    ood = checkpoint.calibration.ood
    if ood is not None:
        model.ood_head = OodHead.of(ood, device, model_dtype)
        # Nothing of it may hold the open file, which would keep the model from being copied and pickled.
        ood = replace(ood, tensors=_in_memory(ood.tensors))
    model.calibration = replace(checkpoint.calibration, ood=ood)
    model.origin = replace(checkpoint, tensors={}, calibration=model.calibration)
    return model.eval().requires_grad_(False)


def to_checkpoint(model: Hydra) -> Checkpoint:
    """Returns the checkpoint that `model` was built from, with the model's present numbers.

    Raises:
        OptionError: the model was not built from a checkpoint.
    """
    if model.origin is None:
        raise OptionError("this model was not built from a checkpoint: there is nothing to save it as")
    state = {name: _narrowed(tensor, model.stored_dtype) for name, tensor in model.state_dict().items()}
    return replace(model.origin, tensors=_in_memory(state))


def _narrowed(tensor: Tensor, stored: torch.dtype | None) -> Tensor:
    """Returns a tensor in the type that it was stored in, if that holds its numbers."""
    if stored is None or not torch.equal((narrow := tensor.to(stored)).to(tensor.dtype), tensor):
        return tensor
    return narrow


def _in_memory(tensors: Mapping[str, Tensor | LazyTensor]) -> TensorMap:
    """Returns tensors as those of a checkpoint, with their numbers in memory."""
    read = {name: tensor.load() if isinstance(tensor, LazyTensor) else tensor for name, tensor in tensors.items()}
    return {name: LazyTensor(tuple(tensor.shape), tensor.dtype, tensor.detach().cpu) for name, tensor in read.items()}


def without_heads(model: Hydra, gone: Set[Head]) -> Hydra:
    """Returns a single-member model without some heads; all tensors that they have no part in are shared with it."""
    if not gone:
        return model
    layout, table = replace(model.layout, heads=without(model.heads, gone)), slots(model.spec)

    def sliced(name: str, tensor: Tensor) -> Tensor:
        before, after = (each.division(table[name], model.spec) for each in (model.layout, layout))
        entries = remaining(before, after)
        if entries is None or after is None:
            return tensor
        return tensor.index_select(after.axis, torch.tensor(entries, dtype=torch.long, device=tensor.device))

    return _rebuilt(model, layout, {name: sliced(name, tensor) for name, tensor in model.state_dict().items()})


def copied(model: Hydra) -> Hydra:
    """Returns a second model with the first one's tensors, until a parameter is given others."""
    return _rebuilt(model, model.layout, model.state_dict())


def _rebuilt(model: Hydra, layout: Layout, state: Mapping[str, Tensor]) -> Hydra:
    rebuilt = Hydra(model.spec, layout, {name: tuple(tensor.shape) for name, tensor in state.items()})
    rebuilt.load_state_dict(state, assign=True)
    rebuilt.labels, rebuilt.preprocessor, rebuilt.class_prompts = model.labels, model.preprocessor, model.class_prompts
    rebuilt.calibration = Calibration(model.calibration.temperature)
    return rebuilt.eval().requires_grad_(False)
