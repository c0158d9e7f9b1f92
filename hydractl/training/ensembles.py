"""Ensembles trained from one dense network, which a Hydra is compared with: what there is to choose from.

Members share the network's weights, and each has a small change of its own to some of them (`Adapter`), which is
trained, stored and run as what it is.

Source: [HE] C for what they are compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydractl.errors import OptionError

if TYPE_CHECKING:
    import torch

    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.training.adapters import Start
    from hydractl.training.recipe import Recipe


@dataclass(frozen=True)
class Ensemble:
    """The ensemble to make of one dense network.

    Attributes:
        kind: the name of its method.
        rank, alpha: LoRA's: a delta counts alpha / rank, where no alpha is given once.
        mask_scale: of MaskEnsembles: with 1 members keep every feature; the more, the fewer they have in common.
        fold: whether members get weights of their own in the end, as networks that are no ensemble have them.
    """

    kind: str
    members: int
    rank: int = 4
    alpha: float | None = None
    mask_scale: float = 1.5
    fold: bool = False

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
        start: what members change of the network, and how they start out; its draws come from the generator.
        takes: the options it has beside the number of members.
        copied: the groups of tensors of which each member has a copy to itself.
        trains: the groups that train, of those that the recipe trains; empty for all of them.
    """

    name: str
    help: str
    start: Callable[[Checkpoint, Ensemble, Recipe, torch.Generator], Start]
    takes: tuple[str, ...]
    copied: tuple[str, ...] = ()
    trains: tuple[str, ...] = ()


def _low_rank(checkpoint: Checkpoint, ensemble: Ensemble, recipe: Recipe, generator: torch.Generator) -> Start:
    from hydractl.training.adapters import low_rank

    return low_rank(checkpoint.spec, ensemble, recipe, generator)


def _rank_one(checkpoint: Checkpoint, ensemble: Ensemble, recipe: Recipe, generator: torch.Generator) -> Start:
    from hydractl.training.adapters import rank_one

    return rank_one(checkpoint.spec, recipe, generator)


def _kept_features(checkpoint: Checkpoint, ensemble: Ensemble, recipe: Recipe, generator: torch.Generator) -> Start:
    from hydractl.training.adapters import kept_features

    return kept_features(checkpoint.spec, ensemble, recipe, generator)


METHODS = (
    EnsembleMethod(
        "lora-ensemble",
        "each member adds low-rank deltas to the attention of one frozen network and has a classifier of its own",
        _low_rank,
        takes=("rank", "alpha", "fold"),
        copied=("classifier",),
        trains=("adapter", "classifier"),
    ),
    EnsembleMethod(
        "batch-ensemble",
        "each member scales rows and columns of shared weights, and all train together",
        _rank_one,
        takes=("fold",),
    ),
    EnsembleMethod(
        "mask-ensemble",
        "each member keeps some of the MLPs' features, always the same, and all train together",
        _kept_features,
        takes=("mask_scale", "fold"),
    ),
)


def taking(option: str) -> tuple[str, ...]:
    """The names of the methods that have an option."""
    return tuple(method.name for method in METHODS if option in method.takes)
