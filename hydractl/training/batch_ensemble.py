"""BatchEnsemble: members scale the rows and the columns of weights that they share.

Source: arXiv 2002.06715.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hydractl.checkpoint.contents import Checkpoint
from hydractl.model.hydra import Hydra
from hydractl.training.ensembles import Ensemble
from hydractl.training.factors import Layout, factorise, matrices
from hydractl.training.network import build_network
from hydractl.training.recipe import Recipe


def build(checkpoint: Checkpoint, recipe: Recipe, ensemble: Ensemble) -> Hydra:
    """The network with factors on every matrix; whatever the recipe trains does, shared weights and factors alike."""
    network = build_network(checkpoint, recipe)
    for module, layout in matrices(network, checkpoint, ensemble.method.own):
        weight = module.get_parameter("weight")
        factorise(module, RankOne(weight, layout), weight.requires_grad, weight.requires_grad)
    return network


class RankOne(nn.Module):
    """`W * s_m r_m^T` for M members of one shared W, in the layout of the members' weights."""

    def __init__(self, weight: Tensor, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        rows, columns = layout.apart(weight).shape[1:]
        self.s = nn.Parameter(torch.ones(layout.members, rows, 1, dtype=weight.dtype))
        self.r = nn.Parameter(torch.ones(layout.members, 1, columns, dtype=weight.dtype))

    def forward(self, shared: Tensor) -> Tensor:
        """The weights as the network takes them, of the one that members share."""
        return self.layout.together(shared * self.s * self.r)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The shared weight of members that are all equal."""
        return self.layout.apart(weight)[0].clone()
