"""Gate: how much each sample's loss feels a gate on a head's output.

Source: Michel et al. 2019, as [HE] D.1.1 compares with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hydractl.checkpoint.heads import Head
from hydractl.circuit.data import ScoringData
from hydractl.circuit.observe import kept_counts, pooled
from hydractl.data.batches import Batch
from hydractl.data.ranks import batch_workers
from hydractl.errors import DataError
from hydractl.model.hydra import Hydra


def gate_scores(model: Hydra, data: ScoringData, tower: str, normalize: bool = False) -> dict[Head, float]:
    """The mean over samples of |dL_i / d xi_h| of each head of a tower, xi_h = 1 a gate on its output; higher = keep.

    Args:
        normalize: divide by the L2 norm of the layer's scores, as Michel et al. do.

    Raises:
        DataError: samples without labels.
    """
    counts = kept_counts(model, tower)
    device = next(model.parameters()).device

    def absolute(number: int) -> Tensor:
        batch = data.id[number]
        with torch.enable_grad():
            return _sample_gradients(model, batch, data, tower, counts).abs().sum(0).double()

    mine = range(data.ranks.rank, len(data.id), data.ranks.size)
    total = torch.zeros(sum(counts), dtype=torch.float64, device=device)
    with batch_workers(device) as in_parallel:
        total = data.ranks.in_turn(in_parallel(absolute, mine), total, len(data.id))
    layers = (total / data.id_samples).split(counts)
    if normalize:
        layers = tuple(layer / layer.norm().clamp(min=torch.finfo(torch.float64).tiny) for layer in layers)
    return {
        Head(tower, number, head): float(value)
        for number, layer in enumerate(layers)
        for head, value in zip(model.heads[tower][number][0], layer, strict=True)
    }


def _sample_gradients(model: Hydra, batch: Batch, data: ScoringData, tower: str, counts: Sequence[int]) -> Tensor:
    """dL_i / d xi_h, `[B,sum H]`."""
    if batch.labels is None:
        raise DataError("the ID samples have no labels: choose labelled data, or name their column with `label_column`")
    device = next(model.parameters()).device
    inputs = {name: tensor.to(device) for name, tensor in batch.inputs.items()}
    prompts = {name: tensor.to(device) for name, tensor in data.all_prompts.items()}
    gated = prompts if prompts and tower == "text" else inputs
    per_sample = gated is inputs
    rows = len(batch.positions) if per_sample else 1
    dtype = next(model.parameters()).dtype
    gates = [torch.ones(rows, count, device=device, dtype=dtype, requires_grad=True) for count in counts]

    def view(number: int, z: Tensor) -> Tensor:
        open_heads = z.unflatten(-1, (counts[number], -1)) if counts[number] else z[..., None]
        return (open_heads * gates[number][:, None, :, None]).flatten(3) if counts[number] else z

    read = pooled(model.get_submodule(tower), gated, view)  # type: ignore[arg-type]
    if prompts:
        images = model.embed("vision", read if per_sample else model.vision.forward_image(inputs["pixel_values"]))
        classes = model.embed_texts(**prompts) if per_sample else model.embed("text", read)
        logits = (images @ classes.mT * model.logit_scale.exp())[0]
    else:
        logits = model.classify(read)[0]
    losses = F.cross_entropy(logits, batch.labels.to(device), reduction="none")
    if per_sample:  # a sample's gates touch its own loss only
        return torch.cat(torch.autograd.grad(losses.sum(), gates, materialize_grads=True), 1)
    each = [torch.autograd.grad(loss, gates, retain_graph=True, materialize_grads=True) for loss in losses]
    return torch.stack([torch.cat(parts, 1)[0] for parts in each])
