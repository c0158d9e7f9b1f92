"""What a model costs: parameters stored, and multiply-adds to classify one sample."""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.slots import parameter_count, slots, stored_shape
from hydractl.checkpoint.spec import ModelSpec
from hydractl.evaluation.results import Cost
from hydractl.evaluation.synthetic import give_synthetic_classes, input_tokens, synthetic_inputs
from hydractl.model.hydra import Hydra


def cost(model: Hydra) -> Cost:
    """The cost of a model, counted by running it without numbers; nothing is computed, whatever its size."""
    shapes = _shapes(model.spec, model.heads, model.shared)
    performed = _count(model)
    return Cost(
        members=model.members,
        parameters=parameter_count(shapes),
        multiply_adds=multiply_adds(model.spec, model.heads, model.shared, model.class_embeddings),
        performed=performed,
        tokens=input_tokens(model.spec),
    )


def multiply_adds(
    spec: ModelSpec, heads: KeptHeads, shared: frozenset[str], class_embeddings: Tensor | None = None
) -> int:
    """Multiply-adds of one sample through a network as published, known before any weight is read."""
    published = Hydra(spec, heads, shared, _shapes(spec, heads, shared)).eval()
    published.class_embeddings = class_embeddings
    return _count(published)


def _shapes(spec: ModelSpec, heads: KeptHeads, shared: frozenset[str]) -> dict[str, tuple[int, ...]]:
    return {name: stored_shape(slot, spec, heads, name in shared) for name, slot in slots(spec).items()}


def _count(model: Hydra) -> int:
    ghosts: dict[str, Tensor] = {
        name: nn.Parameter(tensor.to("meta"), requires_grad=False) for name, tensor in model.named_parameters()
    }
    ghosts |= {name: tensor.to("meta") for name, tensor in model.named_buffers()}
    ghost = copy(model)  # its modules are the model's own
    ghost._compiled_call_impl = None  # of a compiled model, too, operations are counted one by one
    if ghost.class_embeddings is None:
        give_synthetic_classes(ghost, 1)
    if ghost.class_embeddings is not None:
        ghost.class_embeddings = ghost.class_embeddings.to("meta")
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        functional_call(ghost, ghosts, kwargs=synthetic_inputs(model.spec, 1, "meta"))
    return int(counter.get_total_flops() // 2)
