"""OOD scores of features, computed on tensors.

Every function takes what was fitted for each member, its features and its logits, and returns a score for each member
and sample, higher = more OOD. `hydractl.metrics.feature_scores` fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch.nn.functional as F
from torch import Tensor

#: Fitted numbers by name, each with the members first.
State = Mapping[str, Tensor]
#: From a state, features `[M,B,D']` and logits `[M,B,C]` before the temperature to scores `[M,B]`.
Detector = Callable[[State, Tensor, Tensor], Tensor]

NEIGHBOURS = 50


def mahalanobis(state: State, features: Tensor, _logits: Tensor) -> Tensor:
    """Returns min over classes c of (x - mean_c)^T P (x - mean_c), with P = `whiten` `whiten`^T.

    State: `center` `[M,D']`, `whiten` `[M,D',D']`, `means` `[M,C,D']`, the class means less `center`, whitened.
    """
    white = (features - state["center"].unsqueeze(-2)) @ state["whiten"]
    means = state["means"]
    products = white @ means.mT  # [M,B,C]
    lengths = white.square().sum(-1, keepdim=True) + means.square().sum(-1).unsqueeze(-2)
    return (lengths - 2 * products).clamp(min=0).amin(-1)


def relative_mahalanobis(state: State, features: Tensor, logits: Tensor) -> Tensor:
    """Returns the Mahalanobis distance to the nearest class less that to all samples as one class.

    State: as `mahalanobis`, and `background` `[M,D',D']`, which whitens all samples around `center`.
    """
    around = ((features - state["center"].unsqueeze(-2)) @ state["background"]).square().sum(-1)
    return mahalanobis(state, features, logits) - around


def knn(state: State, features: Tensor, _logits: Tensor) -> Tensor:
    """Returns the squared distance of x / |x| to the 50th nearest row of the bank.

    State: `bank` `[M,N,D']`, rows of unit length.
    """
    similarity = F.normalize(features, dim=-1, eps=1e-30) @ state["bank"].mT
    return 2 - 2 * similarity.topk(NEIGHBOURS, dim=-1).values[..., -1]


def vim(state: State, features: Tensor, logits: Tensor) -> Tensor:
    """Returns alpha |R^T (x - o)| - logsumexp(z): a virtual logit against the logits.

    State: `origin` o `[M,D']`, `rest` R `[M,D',D'-p]`, `alpha` `[M,1]`.
    """
    beyond = (features - state["origin"].unsqueeze(-2)) @ state["rest"]
    return state["alpha"] * beyond.norm(dim=-1) - logits.logsumexp(-1)


def react(state: State, features: Tensor, _logits: Tensor) -> Tensor:
    """Returns -logsumexp(W min(x, t) + b).

    State: `threshold` t `[M,1]`, `weight` W `[M,C,D']`, `bias` b `[M,C]`.
    """
    clipped = features.minimum(state["threshold"].unsqueeze(-1))
    return -(clipped @ state["weight"].mT + state["bias"].unsqueeze(-2)).logsumexp(-1)


def combined(state: State, features: Tensor, logits: Tensor) -> Tensor:
    """Returns the sum of the free energy and the Mahalanobis distance, each standardised on ID samples.

    State: as `mahalanobis`, and `location` and `scale` `[M,2]` of the two.
    """
    parts = (-logits.logsumexp(-1), mahalanobis(state, features, logits))
    location, scale = state["location"], state["scale"]
    first, second = ((part - location[:, i, None]) / scale[:, i, None] for i, part in enumerate(parts))
    return first + second


DETECTORS: Mapping[str, Detector] = {
    "react": react,
    "mahalanobis": mahalanobis,
    "relative-mahalanobis": relative_mahalanobis,
    "vim": vim,
    "knn": knn,
    "combined": combined,
}
