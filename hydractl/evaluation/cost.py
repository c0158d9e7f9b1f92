"""What a model costs: parameters stored, and multiply-adds to classify one sample."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from hydractl.checkpoint.spec import ImageEmbeddings, TextEmbeddings
from hydractl.model.hydra import Hydra

TEXT_TOKENS = 128  # a text's length decides its cost; longer than most sentences, as fine-tuning recipes pad


@dataclass(frozen=True)
class Cost:
    """Members, parameters stored, and multiply-adds of matrix products for one sample of `tokens` tokens.

    A zero-shot model's class prompts are encoded once for all samples and not counted.
    """

    members: int
    parameters: int
    multiply_adds: int
    tokens: int


def cost(model: Hydra) -> Cost:
    """The cost of a model, counted by running it without numbers; nothing is computed, whatever its size."""
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    ghost = Hydra(model.spec, model.heads, model.shared, shapes).eval()
    if model.class_embeddings is not None:
        ghost.class_embeddings = model.class_embeddings.to("meta", torch.float32)
    inputs = _one_sample(ghost)
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        ghost(**inputs)
    return Cost(
        members=model.members,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        multiply_adds=counter.get_total_flops() // 2,
        tokens=_tokens(ghost),
    )


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
