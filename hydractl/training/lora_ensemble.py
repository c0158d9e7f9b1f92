"""LoRA-Ensemble: members are low-rank deltas of one frozen network.

Source: arXiv 2405.14438.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hydractl.checkpoint.contents import Checkpoint
from hydractl.model.hydra import Hydra
from hydractl.training.ensembles import Ensemble
from hydractl.training.factors import Layout, factorise, matrices
from hydractl.training.network import build_network
from hydractl.training.order import MEMBERS, derived_seed
from hydractl.training.recipe import Recipe


def build(checkpoint: Checkpoint, recipe: Recipe, ensemble: Ensemble, seed: int) -> Hydra:
    """The network with a delta on q, k, v and o of every layer; deltas train, and each member's classifier."""
    network = build_network(checkpoint, recipe)
    table = checkpoint.slots()
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and table[name].group == "classifier")
    generator = torch.Generator().manual_seed(derived_seed(seed, MEMBERS))
    for module, layout in matrices(network, checkpoint, ("attention",)):
        delta = LoraDelta(module.get_parameter("weight"), layout, ensemble, generator)
        factorise(module, delta, trains=True, shared_trains=False)
    return network


class LoraDelta(nn.Module):
    """`W_m + B_m A_m alpha / rank` for the members' weights; B starts at zero."""

    def __init__(self, weight: Tensor, layout: Layout, ensemble: Ensemble, generator: torch.Generator) -> None:
        super().__init__()
        self.layout = layout
        self.scale = 1.0 if ensemble.alpha is None else ensemble.alpha / ensemble.rank
        rows, columns = layout.apart(weight).shape[1:]
        a = torch.randn((layout.members, ensemble.rank, columns), generator=generator, dtype=weight.dtype)
        self.a = nn.Parameter(a / columns**0.5)
        self.b = nn.Parameter(torch.zeros(layout.members, rows, ensemble.rank, dtype=weight.dtype))

    def forward(self, weight: Tensor) -> Tensor:
        """The weights as the network takes them."""
        return weight + self.layout.together(self.b @ self.a * self.scale)
