"""Ensembles trained from one dense network, which a Hydra is compared with: what there is to choose from.

While such an ensemble trains, a weight per member is made of a shared one and small factors; the file gets the
products, so what was trained and what runs are the same function.

Source: [HE] C for what they are compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.model.hydra import Hydra
    from hydractl.training.recipe import Recipe


@dataclass(frozen=True)
class Ensemble:
    """The ensemble to make of one dense network.

    `rank` and `alpha` are LoRA's: a delta counts alpha / rank, where no alpha is given once.
    """

    kind: str  # the name of its method
    members: int
    rank: int = 4
    alpha: float | None = None

    @property
    def method(self) -> EnsembleMethod:
        """How it is made.

        Raises:
            OptionError: there is no such method.
        """
        for method in METHODS:
            if method.name == self.kind:
                return method
        raise OptionError(f"`method` {self.kind}: unknown: choose {' or '.join(method.name for method in METHODS)}")


@dataclass(frozen=True)
class EnsembleMethod:
    """A way to make an ensemble.

    Attributes:
        takes: the options it has beside the number of members.
        own: the groups of tensors of which each member has its own; all others are shared.
        build: makes the network that trains of a checkpoint whose members are equal, with only what trains unfrozen.
        weighs_samples: whether members weigh each sample differently. Members that start out equal and see the same
            samples stay equal; this tells them apart.
    """

    name: str
    help: str
    own: tuple[str, ...]
    build: Callable[[Checkpoint, Recipe, Ensemble, int], Hydra]
    takes: tuple[str, ...] = ()
    weighs_samples: bool = False


def _lora(checkpoint: Checkpoint, recipe: Recipe, ensemble: Ensemble, seed: int) -> Hydra:
    from hydractl.training.lora_ensemble import build

    return build(checkpoint, recipe, ensemble, seed)


def _batch(checkpoint: Checkpoint, recipe: Recipe, ensemble: Ensemble, seed: int) -> Hydra:
    from hydractl.training.batch_ensemble import build

    return build(checkpoint, recipe, ensemble)


METHODS = (
    EnsembleMethod(
        "lora-ensemble",
        "each member adds low-rank deltas to the attention of one frozen network and has a classifier of its own",
        own=("attention", "classifier"),
        build=_lora,
        takes=("rank", "alpha"),
    ),
    EnsembleMethod(
        "batch-ensemble",
        "each member scales rows and columns of shared weights, and all train together",
        own=("attention", "mlp", "pooler", "classifier"),
        build=_batch,
        weighs_samples=True,
    ),
)


def taking(option: str) -> tuple[str, ...]:
    """The names of the methods that have an option."""
    return tuple(method.name for method in METHODS if option in method.takes)
