"""OBA for single weights: those with the lowest saliency are set to zero, and stay zero in fine-tuning.

    python oba.py MODEL FOLDER --train SOURCE --keep 0.891 --id SOURCE --ood [near/|far/]NAME=SOURCE ...

FOLDER then holds predictions for `hydractl evaluate oba=predictions:FOLDER`.

Source: Sun et al. 2025, arXiv 2502.17941; order 3 is an extension of its authors.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from folder import add_data_options, batches, save_predictions
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import hydractl
from hydractl.checkpoint.slots import slots
from hydractl.circuit.objective import ScoringData
from hydractl.circuit.saliency import cross_entropies
from hydractl.data.batching import make_batches
from hydractl.data.labels import match_labels
from hydractl.data.open import open_samples
from hydractl.data.preprocess import Preprocessor
from hydractl.data.ranks import Ranks
from hydractl.data.reading import Reading
from hydractl.data.samples import Samples
from hydractl.model.hydra import Hydra
from hydractl.systems.cost import cost


def saliencies(model: Hydra, data: ScoringData, order: int) -> dict[str, Tensor]:
    """Returns the saliency of every weight of the linear maps before the classifier, of its shape in float64.

    The saliency of a weight w_i is the share of the Taylor term that its own index accounts for: in order 2
    `|w_i sum_j H_ij w_j|`, with H the Hessian of the mean cross-entropy over all samples; in order 3
    `|w_i sum_jk T_ijk w_j w_k|`. The sums run over all these weights, whatever their layer. H is never stored: each
    order takes one more backward pass.
    """
    linear = [
        name
        for name, slot in slots(model.spec).items()
        if name.endswith((".embeddings.patch.weight", ".embeddings.projection.weight"))
        or (name.endswith(".weight") and slot.group in ("attention", "mlp", "pooler", "projection") and slot.shape[1:])
    ]
    weights = [model.get_parameter(name).requires_grad_(True) for name in linear]
    directions, total = [weight.detach().clone() for weight in weights], [0.0 * weight.double() for weight in weights]
    for batch in data.id:
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # whose backward pass can be differentiated again
            value = cross_entropies(model, batch, {}, weights[0].device).sum() / data.id_samples
            for _ in range(order - 1):
                parts = torch.autograd.grad(value, weights, create_graph=True, materialize_grads=True)
                value = torch.stack([(part * to).sum() for part, to in zip(parts, directions, strict=True)]).sum()
            gradients = torch.autograd.grad(value, weights, materialize_grads=True)
        total = [old.detach() + new.double() for old, new in zip(total, gradients, strict=True)]
    for weight in weights:
        weight.requires_grad_(False)
    return {name: (g * w.detach()).abs() for name, g, w in zip(linear, total, weights, strict=True)}


def prune(model: Hydra, samples: Samples, options: argparse.Namespace) -> list[tuple[Tensor, Tensor]]:
    """Zeroes the weights of linear maps with the lowest saliencies; returns each tensor with the places that stay."""
    preprocessor = cast("Preprocessor", model.preprocessor)
    data = ScoringData(make_batches(samples, preprocessor, options.batch_size), len(samples), [], 0, {}, Ranks(), ())
    found = saliencies(model, data, options.order)
    total = sum(parameter.numel() for parameter in model.parameters())
    flat = torch.cat([saliency.flatten() for saliency in found.values()])
    count = round((1 - options.keep) * total)
    if count > len(flat):
        raise SystemExit(f"--keep {options.keep}: only {len(flat) / total:.1%} of the parameters can be pruned")
    stays = ~lowest(flat, count)
    kept = []
    for name, places in zip(found, stays.split([saliency.numel() for saliency in found.values()]), strict=True):
        weight = model.get_parameter(name)
        kept.append((weight, places.view(weight.shape)))
        weight.data.mul_(kept[-1][1])
    return kept


def lowest(values: Tensor, count: int) -> Tensor:
    """Returns `[N]` booleans that mark the `count` lowest of `[N]` numbers, the first ones among equals."""
    if count == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    limit = values.kthvalue(count).values
    below = values < limit
    equal = (values == limit).nonzero().flatten()
    below[equal[: count - int(below.sum())]] = True
    return below


def finetune(model: Hydra, samples: Samples, kept: list[tuple[Tensor, Tensor]], options: argparse.Namespace) -> None:
    """Trains all weights but the pruned ones with AdamW."""
    generator = torch.Generator().manual_seed(options.seed)
    preprocessor = cast("Preprocessor", model.preprocessor)
    labels = torch.as_tensor(samples.labels)
    model.requires_grad_(True).train()
    optimizer = torch.optim.AdamW(model.parameters(), options.lr)
    for _ in range(options.steps):
        places = torch.randint(len(samples), (options.batch_size,), generator=generator).tolist()
        output = model(**preprocessor([samples.inputs[place] for place in places]))
        optimizer.zero_grad()
        F.cross_entropy(output.member_logits[0], labels[places]).backward()
        optimizer.step()
        with torch.no_grad():
            for weight, stays in kept:
                weight.mul_(stays)
    model.eval()


@torch.no_grad()
def logits(model: Hydra, samples: Samples, size: int) -> Tensor:
    """Returns the logits `[1,N,C]` of images."""
    preprocessor = cast("Preprocessor", model.preprocessor)
    return torch.cat([model(**preprocessor(images)).member_logits for images in batches(samples, size)], 1)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", required=True, metavar="SOURCE", help="labelled images")
    parser.add_argument("--keep", type=float, default=0.891, help="share of the parameters that stay")
    parser.add_argument("--order", type=int, choices=(2, 3), default=2, help="of the Taylor term")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    add_data_options(parser)
    options = parser.parse_args(given)
    model = hydractl.load(options.model)
    assert model.labels is not None, f"{options.model}: its classes have no names"
    samples = match_labels(open_samples(options.train, "image", Reading(limit=options.limit)), model.labels, "name")
    kept = prune(model, samples, options)
    finetune(model, samples, kept, options)
    save_predictions(
        options.folder, options, list(model.labels), cost(model),
        lambda data: {"logits": logits(model, data, options.batch_size)},
    )  # fmt: skip


if __name__ == "__main__":
    main()
