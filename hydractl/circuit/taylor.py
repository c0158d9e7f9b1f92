"""Taylor: how much the loss feels a head's query, key and value weights.

Source: [HE] D.1.1, after Molchanov et al. 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hydractl.checkpoint.heads import Head
from hydractl.circuit.data import ScoringData
from hydractl.data.batches import Batch
from hydractl.data.ranks import batch_workers
from hydractl.errors import DataError
from hydractl.model.hydra import Hydra

PARTS = ("q", "k", "v")


def taylor_scores(model: Hydra, data: ScoringData, heads: Sequence[Head]) -> dict[Head, float]:
    """The Taylor score of each head, higher = keep: the mean of |W G| over its rows of W_Q, W_K and W_V.

    G is the gradient of the mean cross-entropy over all samples, so the batch size does not show.

    Args:
        model: of one member, with all `heads`.

    Raises:
        DataError: samples without labels.
    """
    layers = sorted({(head.tower, head.layer) for head in heads}, key=lambda place: place[1])
    names = [f"{tower}.layers.{layer}.attention.{part}.weight" for tower, layer in layers for part in PARTS]
    weights = [model.get_parameter(name) for name in names]
    gradients = dict(zip(names, mean_gradients(model, data, weights), strict=True))
    scores = {}
    for head in heads:
        place = model.heads[head.tower][head.layer][0].index(head.head)
        width = model.spec.tower(head.tower).head_width
        rows = slice(place * width, (place + 1) * width)
        prefix = f"{head.tower}.layers.{head.layer}.attention"
        parts = [
            (model.get_parameter(name)[rows].double() * gradients[name][rows]).abs().mean()
            for name in (f"{prefix}.{part}.weight" for part in PARTS)
        ]
        scores[head] = float(torch.stack(parts).mean())
    return scores


def mean_gradients(
    model: Hydra,
    data: ScoringData,
    weights: Sequence[Tensor],
    of: Callable[[Tensor], Tensor] = lambda loss: loss,
) -> list[Tensor]:
    """The gradients, float64, of the mean cross-entropy over all samples; batches are added up in their order.

    Args:
        of: what is differentiated in place of the loss, a linear function of it such as a derivative.
    """
    device, prompts = weights[0].device, data.all_prompts

    def gradient(number: int) -> Tensor:
        batch = data.id[number]
        with torch.enable_grad():
            loss = cross_entropies(model, batch, prompts, device).sum() / data.id_samples
            parts = torch.autograd.grad(of(loss), weights, materialize_grads=True)
        return torch.cat([part.double().flatten() for part in parts])

    total = torch.zeros(sum(weight.numel() for weight in weights), dtype=torch.float64, device=device)
    mine = range(data.ranks.rank, len(data.id), data.ranks.size)
    for weight in weights:
        weight.requires_grad_(True)
    try:
        with batch_workers(device) as in_parallel:
            parts: Iterator[Tensor] = in_parallel(gradient, mine)
            total = data.ranks.in_turn(parts, total, len(data.id))
    finally:
        for weight in weights:
            weight.requires_grad_(False)
    split = total.split([weight.numel() for weight in weights])
    return [part.view_as(weight) for part, weight in zip(split, weights, strict=True)]


def cross_entropies(model: Hydra, batch: Batch, prompts: Mapping[str, Tensor], device: torch.device) -> Tensor:
    """The cross-entropy of each sample of a batch, `[B]`, for a zero-shot model that of its class prompts.

    Raises:
        DataError: samples without labels.
    """
    if batch.labels is None:
        raise DataError("the ID samples have no labels: choose labelled data, or name their column with `label_column`")
    inputs = {name: tensor.to(device) for name, tensor in [*batch.inputs.items(), *prompts.items()]}
    logits = model(**inputs).member_logits[0]
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(wide, batch.labels.to(device), reduction="none")
