"""What a model costs: parameters stored, and multiply-adds to classify one sample."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.slots import parameter_count, slots, stored_shape
from hydractl.checkpoint.spec import ModelSpec
from hydractl.evaluation.synthetic import give_synthetic_classes, input_tokens, synthetic_inputs
from hydractl.model.hydra import Hydra
from hydractl.model.posterior import Embedded


@dataclass(frozen=True)
class Cost:
    """Members, parameters stored, and multiply-adds of matrix products for one sample of `tokens` tokens.

    `multiply_adds` are those of the network as it is published, every token through every layer; `performed` are those
    of this very model, fewer once it is optimised for inference. A zero-shot model's class prompts are encoded once for
    all samples and not counted.
    """

    members: int
    parameters: int
    multiply_adds: int
    performed: int
    tokens: int


def cost(model: Hydra) -> Cost:
    """The cost of a model, counted by running it without numbers; nothing is computed, whatever its size."""
    shapes = _shapes(model.spec, model.heads, model.shared)
    performed = _count(model)
    # What is attached is no part of the published network: what it adds to this one counts for both.
    added = 0 if model.posterior is None else performed - _count(model, attached=False)
    if model.errors is not None:
        predicting = model.errors.multiply_adds(
            1 if model.class_embeddings is None else model.class_embeddings.shape[-2]
        )
        performed, added = performed + predicting, added + predicting
    return Cost(
        members=model.members,
        parameters=parameter_count(shapes) + attached_numbers(model),
        multiply_adds=multiply_adds(model.spec, model.heads, model.shared, model.class_embeddings) + added,
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


def attached_numbers(model: Hydra) -> int:
    """How many numbers are attached to a network."""
    attached = model.origin and model.origin.attached
    return 0 if not attached else sum(prod(tensor.shape) for tensor in attached.tensors.values())


def _count(model: Hydra, attached: bool = True) -> int:
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
    ghost.posterior = model.posterior.to("meta") if attached and model.posterior else None
    if ghost.class_moments is not None:
        ghost.class_moments = Embedded(*(moment.to("meta") for moment in ghost.class_moments))
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        functional_call(ghost, ghosts, kwargs=synthetic_inputs(model.spec, 1, "meta"))
    return int(counter.get_total_flops() // 2)
