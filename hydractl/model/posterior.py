"""Zero-shot answers that know how sure the embeddings are: Gaussian projections, moments of the cosine, probit softmax.

Source: Baumann et al. 2024, arXiv 2412.06014, whose moments of the cosine follow Smith et al. 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import NamedTuple

import torch
from torch import Tensor

from hydractl.checkpoint.attached import Attached


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

    def to(self, device: torch.device | str) -> ProjectionPosterior:
        """The same on another device."""
        return ProjectionPosterior(
            {tower: tensor.to(device) for tower, tensor in self.input_covariance.items()},
            {tower: tensor.to(device) for tower, tensor in self.output_variance.items()},
        )


def projection_posterior(attached: Attached, device: torch.device | str, dtype: torch.dtype) -> ProjectionPosterior:
    """The posterior that lies beside a network, at least in float32.

    Raises:
        CheckpointError: a number of it is none, or is no variance.
    """
    wide = torch.promote_types(dtype, torch.float32)
    found = {name: tensor.load().to(device, wide) for name, tensor in attached.tensors.items()}
    towers = sorted({name.partition(".")[0] for name in found})
    return ProjectionPosterior(
        {tower: found[f"{tower}.input_covariance"] for tower in towers},
        {tower: found[f"{tower}.output_variance"] for tower in towers},
    )


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
