"""BayesVLM: a Laplace approximation of a zero-shot model's two projections, fitted on image-text pairs as they come.

The loss is the contrastive one, image to text for the image projection and text to image for the other; what each is
compared with counts as fixed. Its generalised Gauss-Newton matrix is taken as the product of two factors (KFAC), of
the projection's inputs and of its outputs.

Source: Baumann et al. 2024, arXiv 2412.06014.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from hydractl.checkpoint.attached import Attached, BayesVlm
from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.preprocessing import Preprocessor
from hydractl.data.samples import Samples
from hydractl.errors import DataError, NotFiniteError
from hydractl.model.hydra import Hydra
from hydractl.surgery.provenance import with_provenance
from hydractl.training.classifier import held
from hydractl.training.pairs import PairPreprocessor, PairStream

ROWS = 1024  # samples that are compared with all of a block at once
LOG_PRECISIONS = (-20.0, 20.0)  # among which the prior's precision is looked for
TOWERS = ("vision", "text")


@dataclass(frozen=True, eq=False)
class Factors:
    """The two factors of one projection's Gauss-Newton matrix, summed over samples, in float64.

    Attributes:
        inputs: `[M,D,D]`, of the tokens that are projected.
        outputs: `[M,P,P]`, of the loss by what they are projected to.
    """

    inputs: Tensor
    outputs: Tensor

    def __add__(self, other: Factors) -> Factors:
        return Factors(self.inputs + other.inputs, self.outputs + other.outputs)


@dataclass(frozen=True, eq=False)
class Fit:
    """How the pairs are read: so many contrasted together, so many through the network at once."""

    contrast: int
    batch_size: int
    on_batch: Callable[[int], None] = lambda pairs: None


def sum_factors(model: Hydra, pairs: Samples | PairStream, fit: Fit) -> tuple[dict[str, Factors], int]:
    """The factors of both projections over all pairs, by tower, and how many pairs there were; a block is in memory.

    Raises:
        DataError: fewer than two pairs, or one that cannot be read.
        NotFiniteError: an embedding is not finite.
    """
    totals: dict[str, Factors] = {}
    count = 0
    for block in _blocks(pairs, fit.contrast):
        if len(block) < 2:
            continue  # the last pair of many may be alone, and contrasted with nothing it says nothing
        pooled = _pooled(model, block, fit)
        projected = {tower: model.get_submodule(f"{tower}.projection")(pooled[tower]) for tower in TOWERS}
        scale = model.logit_scale.exp().double().view(-1, 1, 1)
        for tower, other in zip(TOWERS, reversed(TOWERS), strict=True):
            inputs = pooled[tower].double().expand(model.members, -1, -1)
            own, others = (projected[side].double().expand(model.members, -1, -1) for side in (tower, other))
            found = Factors(inputs.mT @ inputs, output_factor(own, others, scale))
            totals[tower] = totals[tower] + found if tower in totals else found
        count += len(block)
    if not totals:
        raise DataError(f"{pairs.name}: a posterior is fitted on two pairs or more")
    return totals, count


def output_factor(own: Tensor, others: Tensor, scale: Tensor) -> Tensor:
    """The Gauss-Newton matrix of the contrastive loss by one side's embeddings, summed over samples, `[M,P,P]`.

    Args:
        own: `[M,N,P]`, before they are brought to unit length.
        others: `[M,N,P]`, what each is compared with.
        scale: `[M,1,1]`, of the cosine.
    """
    others = others / others.norm(dim=-1, keepdim=True)
    total = own.new_zeros(own.shape[0], own.shape[-1], own.shape[-1])
    for rows in own.split(ROWS, 1):
        lengths = rows.norm(dim=-1, keepdim=True)
        unit = rows / lengths
        cosine = unit @ others.mT
        p = (scale * cosine).softmax(-1)
        # With S the covariance of the others under p and J = (I - u u') / |x| each sample adds J S J, which is taken
        # apart so that no [P,P] matrix of a single sample is ever made.
        mean = p @ others
        along = (p * cosine) @ others - mean * (p * cosine).sum(-1, keepdim=True)  # S u
        weight = lengths.pow(-2)
        total += (others * (p * weight).sum(1)[..., None]).mT @ others - (mean * weight).mT @ mean
        cross = (unit * weight).mT @ along
        total += (unit * weight * (unit * along).sum(-1, keepdim=True)).mT @ unit - cross - cross.mT
    return total * scale.square()


def prior_precision(factors: Factors, count: int, weight: Tensor) -> float:
    """The precision of the prior under which the evidence of one pseudo-sample is largest, over all members together.

    Args:
        weight: `[M,P,D]`, the projection.
    """
    inputs, outputs = (np.clip(torch.linalg.eigvalsh(one).numpy(), 0, None) for one in _mean_factors(factors, count))
    d, p = inputs.shape[-1], outputs.shape[-1]
    squares = float(weight.double().square().sum())

    def loss(log_precision: float) -> float:
        root = np.exp(log_precision / 2)
        determinant = p * np.log(inputs + root).sum() + d * np.log(outputs + root).sum()
        return float(np.exp(log_precision) * squares - weight.numel() * log_precision + determinant) / 2

    grid = np.linspace(*LOG_PRECISIONS, num=41)
    best = int(np.argmin([loss(point) for point in grid]))
    around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    return float(np.exp(minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-9}).x))


def covariances(factors: Factors, count: int, pseudo_count: float, precision: float) -> tuple[Tensor, Tensor]:
    """Covariance of inputs `[M,D,D]` and variances of outputs `[M,P]` of the posterior, as if of so many samples."""
    inputs, outputs = (
        pseudo_count**0.5 * one + precision**0.5 * torch.eye(one.shape[-1], dtype=one.dtype)
        for one in _mean_factors(factors, count)
    )
    return torch.linalg.inv(inputs), torch.linalg.inv(outputs).diagonal(dim1=-2, dim2=-1)


def _mean_factors(factors: Factors, count: int) -> tuple[Tensor, Tensor]:
    # Their product is that of the sums over the count: one sample's share of the whole matrix, times the samples.
    return factors.inputs.cpu() / count**0.5, factors.outputs.cpu() / count**0.5


def with_posterior(
    checkpoint: Checkpoint,
    model: Hydra,
    pairs: Samples | PairStream,
    fit: Fit,
    pseudo_count: float,
    options: dict[str, Any],
) -> Checkpoint:
    """The checkpoint with the posterior of its projections; it has no temperature, which a posterior replaces.

    Args:
        model: the network, as built of the checkpoint.
        options: those that determine the result.

    Raises:
        DataError: see `sum_factors`.
    """
    with torch.no_grad():
        factors, count = sum_factors(model, pairs, fit)
    tensors, precisions = {}, {}
    for tower in TOWERS:
        weight = model.state_dict()[f"{tower}.projection.weight"].cpu()
        weight = weight.expand(model.members, *weight.shape[-2:])
        precisions[tower] = prior_precision(factors[tower], count, weight)
        found = covariances(factors[tower], count, pseudo_count, precisions[tower])
        dtype = torch.promote_types(checkpoint.tensors[f"{tower}.projection.weight"].dtype, torch.float32)
        for name, tensor in zip(("input_covariance", "output_variance"), found, strict=True):
            tensors[f"{tower}.{name}"] = held(tensor.to(dtype).contiguous())
    # Pairs have no labels, and their hashes are of image and text together: no evaluation could know them again.
    told = {**options, "pairs": {"name": pairs.name, "samples": count}}
    made = with_provenance(replace(checkpoint, temperature=None), "calibrate", [checkpoint], told)
    form = BayesVlm("bayesvlm", pseudo_count, {"vision": precisions["vision"], "text": precisions["text"]}, count)
    return replace(made, attached=Attached(form, tensors))


def _blocks(pairs: Samples | PairStream, size: int) -> Iterator[Samples]:
    if isinstance(pairs, PairStream):
        yield from pairs.blocks(size)
        return
    for start in range(0, len(pairs), size):
        yield pairs.subset(np.arange(start, min(start + size, len(pairs))))


def _pooled(model: Hydra, block: Samples, fit: Fit) -> dict[str, Tensor]:
    """What both towers pool of a block's pairs, `[G,N,D]`."""
    device = next(model.parameters()).device
    preprocess = PairPreprocessor(cast("Preprocessor", model.preprocessor))  # which any that a model has can stand for
    found: dict[str, list[Tensor]] = {tower: [] for tower in TOWERS}
    for start in range(0, len(block), fit.batch_size):
        some = [block.inputs[place] for place in range(start, min(start + fit.batch_size, len(block)))]
        inputs = {name: tensor.to(device) for name, tensor in preprocess(some).items()}
        found["vision"].append(model.vision.forward_image(inputs["pixel_values"]))
        found["text"].append(model.text.forward_text(inputs["input_ids"], inputs.get("attention_mask")))
        fit.on_batch(len(some))
    pooled = {tower: torch.cat(parts, 1) for tower, parts in found.items()}
    if not all(tokens.isfinite().all() for tokens in pooled.values()):
        raise NotFiniteError("the model's embeddings are not finite on these pairs: try `dtype` float32")
    return pooled
