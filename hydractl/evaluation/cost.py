"""What a model costs: parameters stored, and multiply-adds to classify one sample."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from hydractl.checkpoint.slots import parameter_count, slots, stored_shape
from hydractl.checkpoint.spec import ImageEmbeddings, TextEmbeddings
from hydractl.model.hydra import Hydra

TEXT_TOKENS = 128  # a text's length decides its cost; longer than most sentences, as fine-tuning recipes pad


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
    table = slots(model.spec)
    shapes = {name: stored_shape(slot, model.spec, model.heads, name in model.shared) for name, slot in table.items()}
    published = Hydra(model.spec, model.heads, model.shared, shapes).eval()
    published.class_embeddings = model.class_embeddings
    return Cost(
        members=model.members,
        parameters=parameter_count(shapes),
        multiply_adds=_count(published),
        performed=_count(model),
        tokens=_tokens(model),
    )


def _count(model: Hydra) -> int:
    ghosts: dict[str, Tensor] = {
        name: nn.Parameter(tensor.to("meta"), requires_grad=False) for name, tensor in model.named_parameters()
    }
    ghosts |= {name: tensor.to("meta") for name, tensor in model.named_buffers()}
    ghost = copy(model)  # its modules are the model's own
    if model.class_embeddings is not None:
        ghost.class_embeddings = model.class_embeddings.to("meta")
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        functional_call(ghost, ghosts, kwargs=_one_sample(model))
    return int(counter.get_total_flops() // 2)


def _one_sample(model: Hydra) -> dict[str, Tensor]:
    embeddings = model.spec.towers[0].embeddings
    if isinstance(embeddings, ImageEmbeddings):
        return {"pixel_values": torch.empty(1, embeddings.channels, *embeddings.image_size, device="meta")}
    return {"input_ids": torch.empty(1, _tokens(model), dtype=torch.long, device="meta")}


def _tokens(model: Hydra) -> int:
    embeddings = model.spec.towers[0].embeddings
    if isinstance(embeddings, TextEmbeddings):
        return min(TEXT_TOKENS, embeddings.max_tokens)
    return embeddings.tokens
