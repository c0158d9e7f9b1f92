"""Zeros that stay: what unstructured pruning has taken does not come back in training."""

from __future__ import annotations

from typing import Any

import torch

from hydractl.checkpoint.slots import linear_weights
from hydractl.model.hydra import Hydra


def keep_zeros(network: Hydra, optimizer: torch.optim.Optimizer) -> None:
    """Makes the zeros of a network's linear weights stay zero in every step from now on.

    They take no part in gradients, so that neither the gradient's norm nor a momentum knows of them; and since an
    optimiser may mix the entries of a matrix, they are set to zero again after each step.
    """
    trained = {name: p for name in linear_weights(network.spec) if (p := network.get_parameter(name)).requires_grad}
    kept = [(parameter, parameter.detach() != 0) for parameter in trained.values()]
    for parameter, places in kept:
        parameter.register_hook(lambda gradient, places=places: gradient * places)

    @torch.no_grad()
    def again(*_: Any) -> None:
        for parameter, places in kept:
            parameter.mul_(places)

    optimizer.register_step_post_hook(again)
