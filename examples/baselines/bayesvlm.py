"""BayesVLM: a Laplace approximation of a zero-shot model's two projections, fitted on image-text pairs.

    python bayesvlm.py MODEL FOLDER --pairs SOURCE --id SOURCE --ood [near/|far/]NAME=SOURCE ...

FOLDER then holds predictions for `hydractl evaluate bayesvlm=predictions:FOLDER`. Nothing is trained and no labels
are needed. The classes are those of the ID data.

The loss is the contrastive one, image to text for the image projection and text to image for the other; what each is
compared with counts as fixed. Its generalised Gauss-Newton matrix is taken as the product of two factors (KFAC), of
the projection's inputs and of its outputs. Predictions use the moments of the cosine and a probit softmax.

Source: Baumann et al. 2024, arXiv 2412.06014.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import pi
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from folder import add_data_options, batches, save_predictions
from scipy.optimize import minimize_scalar
from torch import Tensor

import hydractl
from hydractl.data.open import open_samples
from hydractl.data.preprocess import Preprocessor
from hydractl.data.reading import Reading
from hydractl.data.samples import Samples
from hydractl.model.hydra import Hydra
from hydractl.systems.cost import cost
from hydractl.training.trainset import open_pairs

ROWS = 1024  # samples that are compared with all of a block at once
LOG_PRECISIONS = (-20.0, 20.0)  # range of the prior's precision
TOWERS = ("vision", "text")


class Embedded(NamedTuple):
    """Gaussian embeddings with independent entries, `[G,B,P]` each, not of unit length."""

    mean: Tensor
    variance: Tensor


@dataclass(frozen=True, eq=False)
class ProjectionPosterior:
    """Gaussian posteriors of both projections: their covariance is that of outputs times that of inputs.

    Attributes:
        input_covariance: by tower, `[M,D,D]`.
        output_variance: by tower, `[M,P]`, the diagonal of the outputs' covariance.
    """

    input_covariance: Mapping[str, Tensor]
    output_variance: Mapping[str, Tensor]

    def embed(self, tower: str, pooled: Tensor, projected: Tensor) -> Embedded:
        """The embeddings of pooled tokens `[G,B,D]`, whose projections `[G,B,P]` are their means."""
        covariance = self.input_covariance[tower]
        pooled = pooled.to(covariance.dtype)
        spread = ((pooled @ covariance) * pooled).sum(-1, keepdim=True)  # [M,B,1]
        return Embedded(projected.to(covariance.dtype), spread * self.output_variance[tower][:, None])


def cosine_moments(images: Embedded, texts: Embedded) -> tuple[Tensor, Tensor]:
    """Mean and variance `[M,B,C]` of the cosine of images `[M,B,P]` and texts `[M,C,P]`.

    Lengths are replaced by the roots of their expected squares; the moments of the inner product are then exact.
    """
    image_squares, text_squares = (one.mean.square() + one.variance for one in (images, texts))
    squared_lengths = image_squares.sum(-1, keepdim=True) * text_squares.sum(-1)[..., None, :]  # [M,B,C]
    mean = (images.mean @ texts.mean.mT) / squared_lengths.sqrt()
    spread = image_squares @ texts.variance.mT + images.variance @ texts.mean.square().mT
    return mean, spread / squared_lengths


def probit_logits(mean: Tensor, variance: Tensor, scale: Tensor) -> Tensor:
    """Logits whose softmax approximates the mean softmax over Gaussian cosines times `scale`.

    Source: MacKay 1992; for several classes Gibbs 1998.
    """
    return scale * mean / (1 + pi / 8 * scale.square() * variance).sqrt()


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


def fit(model: Hydra, pairs: Samples, options: argparse.Namespace) -> ProjectionPosterior:
    """Returns the posterior of both projections, as if fitted on `pseudo_count` samples."""
    with torch.no_grad():
        factors, count = sum_factors(model, pairs, options)
    inputs, outputs = {}, {}
    for tower in TOWERS:
        weight = model.state_dict()[f"{tower}.projection.weight"].cpu()
        weight = weight.expand(model.members, *weight.shape[-2:])
        precision = prior_precision(factors[tower], count, weight)
        found = covariances(factors[tower], count, options.pseudo_count, precision)
        inputs[tower], outputs[tower] = (tensor.float() for tensor in found)
    return ProjectionPosterior(inputs, outputs)


def answers(model: Hydra, posterior: ProjectionPosterior, samples: Samples, size: int) -> dict[str, Tensor]:
    """Returns the logits `[M,N,C]` of images, by the posterior."""
    assert model.class_prompts is not None
    texts = embedded(model, posterior, "text", model.text.forward_text(**model.class_prompts))
    scale = model.logit_scale.exp().view(-1, 1, 1).float()
    parts = []
    for images in batches(samples, size):
        pooled = model.vision.forward_image(cast("Preprocessor", model.preprocessor)(images)["pixel_values"])
        cosine = cosine_moments(embedded(model, posterior, "vision", pooled), texts)
        parts.append(probit_logits(*cosine, scale).expand(model.members, -1, -1))
    return {"logits": torch.cat(parts, 1)}


def embedded(model: Hydra, posterior: ProjectionPosterior, tower: str, pooled: Tensor) -> Embedded:
    """Returns mean and variance of the embeddings of pooled tokens `[G,B,D]`."""
    return posterior.embed(tower, pooled, model.get_submodule(f"{tower}.projection")(pooled))


def sum_factors(model: Hydra, pairs: Samples, options: argparse.Namespace) -> tuple[dict[str, Factors], int]:
    """Returns the factors of both projections over all pairs, by tower, and the number of pairs.

    Raises:
        SystemExit: fewer than two pairs.
    """
    totals: dict[str, Factors] = {}
    count = 0
    for block in _blocks(pairs, options.contrast):
        if len(block) < 2:
            continue  # the last pair of many may be alone, and contrasted with nothing it says nothing
        pooled = _pooled(model, block, options.batch_size)
        projected = {tower: model.get_submodule(f"{tower}.projection")(pooled[tower]) for tower in TOWERS}
        scale = model.logit_scale.exp().double().view(-1, 1, 1)
        for tower, other in zip(TOWERS, reversed(TOWERS), strict=True):
            inputs = pooled[tower].double().expand(model.members, -1, -1)
            own, others = (projected[side].double().expand(model.members, -1, -1) for side in (tower, other))
            found = Factors(inputs.mT @ inputs, output_factor(own, others, scale))
            totals[tower] = totals[tower] + found if tower in totals else found
        count += len(block)
    if not totals:
        raise SystemExit(f"{pairs.name}: a posterior needs two pairs or more")
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


def _blocks(pairs: Samples, size: int) -> Iterator[Samples]:
    for start in range(0, len(pairs), size):
        yield pairs.subset(np.arange(start, min(start + size, len(pairs))))


def _pooled(model: Hydra, block: Samples, size: int) -> dict[str, Tensor]:
    """What both towers pool of a block's pairs, `[G,N,D]`."""
    device = next(model.parameters()).device
    preprocess = cast("Preprocessor", model.preprocessor)
    found: dict[str, list[Tensor]] = {tower: [] for tower in TOWERS}
    for some in batches(block, size):
        inputs = {name: tensor.to(device) for name, tensor in preprocess(some).items()}
        found["vision"].append(model.vision.forward_image(inputs["pixel_values"]))
        found["text"].append(model.text.forward_text(inputs["input_ids"], inputs.get("attention_mask")))
    return {tower: torch.cat(parts, 1) for tower, parts in found.items()}


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", required=True, metavar="SOURCE", help="images with texts")
    parser.add_argument("--pseudo-count", type=float, default=10.0, help="samples that the pairs count as")
    parser.add_argument("--contrast", type=int, default=32768, help="pairs that are compared with each other")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--pair-limit", type=int)
    add_data_options(parser)
    options = parser.parse_args()
    model = hydractl.load(options.model)
    inside = open_samples(options.id, "image", Reading(limit=1))
    assert inside.label_names is not None, f"{inside.name}: has no named labels"
    model.set_classes(inside.label_names)
    posterior = fit(model, open_pairs(options.pairs, Reading(limit=options.pair_limit)), options)
    save_predictions(
        options.folder, options, list(inside.label_names), cost(model),
        lambda samples: answers(model, posterior, samples, options.batch_size),
    )  # fmt: skip


if __name__ == "__main__":
    main()
