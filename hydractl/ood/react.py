"""Rectified activations: the free energy of the logits of clipped features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydractl.errors import DataError
from hydractl.ood.score import Fitted, MemberSamples, OodScore, Outputs, State, each_member

if TYPE_CHECKING:
    from torch import Tensor

PERCENTILE = 90  # of the numbers that it leaves as they are


def fit_react(samples: MemberSamples) -> Fitted:
    """Fits the 90th percentile of all numbers in the ID features.

    Raises:
        DataError: no samples.

    Source: Sun et al. 2021, equation 4, as OpenOOD 1.5 computes it with its percentile of 90.
    """
    import numpy as np

    if not len(samples.features):
        raise DataError("0 samples to fit on: react needs one at least: give more data")
    weight, bias = samples.classifier()
    return {"threshold": np.percentile(samples.features, [PERCENTILE]), "weight": weight, "bias": bias}


def react(state: State, answers: Outputs) -> Tensor:
    """Returns -logsumexp(W min(x, t) + b), mean over members.

    State: `threshold` t `[M,1]`, `weight` W `[M,C,D']`, `bias` b `[M,C]`.
    """
    clipped = answers.read().minimum(state["threshold"].unsqueeze(-1))
    return -(clipped @ state["weight"].mT + state["bias"].unsqueeze(-2)).logsumexp(-1).mean(0)


REACT = OodScore(
    "react",
    "free energy of the logits of features clipped at their 90th percentile, mean over members",
    "Sun et al. 2021",
    react,
    "features",
    each_member(fit_react),
    {"threshold": "M1", "weight": "MCD", "bias": "MC"},
)
