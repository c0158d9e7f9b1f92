"""The contrastive step: every image of a step against every text of it, over all devices and forward passes.

The loss needs all embeddings at once, the network's activations only a few at a time: embeddings come first, without
a graph; the loss gives their gradients; then each forward pass is done again and takes its share of them back.

Source: CLIP's loss, arXiv 2103.00020; the two passes as in GradCache, arXiv 2101.06983.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from hydractl.data.batches import Batch
from hydractl.model.hydra import Hydra

LARGEST_LOG_SCALE = math.log(100)


class Embedder(nn.Module):
    """A zero-shot network that returns the embeddings of pairs, as what several processes wrap and share."""

    def __init__(self, network: Hydra) -> None:
        super().__init__()
        self.network = network

    def forward(self, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Unit-length embeddings `[B,G,P]` of images and of texts."""
        images, texts = model_embeddings(self.network, inputs)
        return images.transpose(0, 1), texts.transpose(0, 1)


def model_embeddings(network: Hydra, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Unit-length embeddings `[G,B,P]` of the images and of the texts of pairs."""
    images = network.embed("vision", network.vision.forward_image(inputs["pixel_values"]))
    return images, network.embed_texts(inputs["input_ids"], inputs.get("attention_mask"))


def pair_logits(images: Tensor, texts: Tensor, logit_scale: Tensor) -> Tensor:
    """`[G,N,N]`: each image against each text."""
    return torch.matmul(images, texts.mT) * logit_scale.exp().view(-1, 1, 1)


def contrastive_loss(images: Tensor, texts: Tensor, logit_scale: Tensor) -> Tensor:
    """The mean over images and texts of the cross-entropy of their partner, of embeddings `[G,N,P]`."""
    logits = pair_logits(images, texts, logit_scale)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    partners = torch.arange(logits.shape[1], device=logits.device).expand(len(logits), -1)
    return (F.cross_entropy(logits.mT, partners) + F.cross_entropy(logits, partners)) / 2


def bound_scale(network: Hydra) -> None:
    """Keeps a `logit_scale` that trains between 1 and 100, as CLIP and OpenCLIP do after every step."""
    if network.logit_scale.requires_grad:
        with torch.no_grad():
            network.logit_scale.clamp_(0, LARGEST_LOG_SCALE)


def contrastive_backward(
    model: Any, network: Hydra, batches: Sequence[Batch], accelerator: Accelerator, seed: Callable[[int], None]
) -> Tensor:
    """Puts the gradient of a step's loss into the parameters; returns that loss.

    Args:
        model: an `Embedder`, as accelerate wraps it.
        batches: of this process, as many pairs as every other process has.
        seed: sets the random state of a forward pass, so that its dropout is the same both times.
    """
    inputs = [{name: t.to(accelerator.device) for name, t in batch.inputs.items()} for batch in batches]
    embedded = []
    with torch.no_grad():
        for forward, one in enumerate(inputs):
            seed(forward)
            embedded.append(model(**one))
    local = [torch.cat(side) for side in zip(*embedded, strict=True)]
    images, texts = (accelerator.gather(side).detach().requires_grad_() for side in local)
    scale = network.logit_scale.detach().clone().requires_grad_()
    loss = contrastive_loss(images.transpose(0, 1), texts.transpose(0, 1), scale)
    gradients = torch.autograd.grad(loss, [images, texts, scale])
    start = accelerator.process_index * len(local[0])
    shares = accelerator.num_processes * len(batches)
    for forward, one in enumerate(inputs):
        end = start + len(one["pixel_values"])
        with accelerator.accumulate(model):
            seed(forward)
            found = model(**one)
            surrogate = sum((own * full[start:end]).sum() for own, full in zip(found, gradients[:2], strict=True))
            surrogate = surrogate + (network.logit_scale * gradients[2]).sum() / shares
            # Accelerate and DDP average over passes and processes; what they add up here is to be a sum.
            accelerator.backward(surrogate * shares)
        start = end
    return loss.detach()
