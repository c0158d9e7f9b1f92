"""Inputs without meaning, for counting, timing and comparing: what a model takes, filled with noise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from hydractl.checkpoint.spec import ImageEmbeddings, ModelSpec, TextEmbeddings
from hydractl.model.hydra import Hydra

TEXT_TOKENS = 128  # a text's length decides its cost; longer than most sentences, as fine-tuning recipes pad


def input_tokens(spec: ModelSpec, wanted: int = TEXT_TOKENS) -> int:
    """Tokens of one sample: those of an image, or of a text as long as wanted where the model takes that many."""
    embeddings = spec.towers[0].embeddings
    return embeddings.tokens if isinstance(embeddings, ImageEmbeddings) else min(wanted, embeddings.max_tokens)


def synthetic_inputs(
    spec: ModelSpec, batch: int, device: torch.device | str = "cpu", tokens: int = TEXT_TOKENS, seed: int = 0
) -> dict[str, Tensor]:
    """A batch of noise by the names `Hydra.forward` gives its arguments; the same for the same seed on every device."""
    embeddings = spec.towers[0].embeddings
    generator = torch.Generator().manual_seed(seed)
    if isinstance(embeddings, ImageEmbeddings):
        shape = (batch, embeddings.channels, *embeddings.image_size)
        if str(device) == "meta":
            return {"pixel_values": torch.empty(shape, device="meta")}
        return {"pixel_values": torch.randn(shape, generator=generator).to(device)}
    return {"input_ids": _ids(embeddings, batch, input_tokens(spec, tokens), generator).to(device)}


def _ids(embeddings: TextEmbeddings, batch: int, tokens: int, generator: torch.Generator) -> Tensor:
    # Padding is an id among the first few, and where positions depend on it a text of padding has none.
    low = min(5, embeddings.vocabulary - 1)
    return torch.randint(low, embeddings.vocabulary, (batch, tokens), generator=generator)


def give_synthetic_classes(model: Hydra, count: int = 100) -> None:
    """Lets a zero-shot model compare with random class embeddings; other models have classes of their own."""
    if model.spec.task != "zero-shot":
        return
    weight = model.logit_scale
    noise = torch.randn(1, count, model.spec.projection or 1, generator=torch.Generator().manual_seed(0))
    model.class_embeddings = normalize(noise, dim=-1).to(weight.device, weight.dtype)
