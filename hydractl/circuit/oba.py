"""OBA: how much of the loss's Taylor term of some order each weight answers for, if all of them go.

Source: Sun et al. 2025, arXiv 2502.17941; order 3 by the authors' extension of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from hydractl.checkpoint.heads import Head
from hydractl.checkpoint.slots import linear_weights
from hydractl.circuit.data import ScoringData
from hydractl.circuit.taylor import mean_gradients
from hydractl.model.hydra import Hydra


def saliencies(model: Hydra, data: ScoringData, names: Sequence[str], order: int = 2) -> dict[str, Tensor]:
    """The saliency of every weight in the tensors named, each of its tensor's shape in float64, higher = keep.

    A weight w_i has that share of the term of this order which its own index accounts for: of order 2
    `|w_i sum_j H_ij w_j|`, H being the Hessian of the mean cross-entropy over all samples; of order 3
    `|w_i sum_jk T_ijk w_j w_k|`. The sums run over all weights named, in whatever layers, and no H is ever held:
    each order takes one more backward pass.

    Args:
        model: of one member.
        order: 2 as published, or 3.

    Raises:
        DataError: samples without labels.
    """
    weights = [model.get_parameter(name) for name in names]
    directions = [weight.detach().clone() for weight in weights]

    def along(loss: Tensor) -> Tensor:
        for _ in range(order - 1):
            parts = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
            loss = torch.stack([(part * to).sum() for part, to in zip(parts, directions, strict=True)]).sum()
        return loss

    with sdpa_kernel(SDPBackend.MATH):  # the one whose backward pass can be differentiated again
        gradients = mean_gradients(model, data, weights, along)
    return {name: (g * w.detach()).abs() for name, g, w in zip(names, gradients, weights, strict=True)}


def oba_scores(model: Hydra, data: ScoringData, heads: Sequence[Head], order: int = 2) -> dict[Head, float]:
    """The sum of the saliencies of each head's query, key, value and output weights, higher = keep.

    Args:
        model: of one member, with all `heads`.

    Raises:
        DataError: samples without labels.
    """
    found = saliencies(model, data, linear_weights(model.spec), order)
    return {head: _of_head(model, found, head) for head in heads}


def _of_head(model: Hydra, found: Mapping[str, Tensor], head: Head) -> float:
    place = model.heads[head.tower][head.layer][0].index(head.head)
    width = model.spec.tower(head.tower).head_width
    prefix = f"{head.tower}.layers.{head.layer}.attention"
    axes = {"q": 0, "k": 0, "v": 0, "o": 1}
    slices = (found[f"{prefix}.{part}.weight"].narrow(axis, place * width, width) for part, axis in axes.items())
    return float(torch.stack([of_part.sum() for of_part in slices]).sum())
