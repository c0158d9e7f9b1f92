"""The methods of unstructured pruning. A new one is its own file and a row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

    from hydractl.circuit.data import ScoringData
    from hydractl.model.hydra import Hydra

Saliencies: TypeAlias = "Mapping[str, Tensor]"


@dataclass(frozen=True)
class WeightMethod:
    """A way to choose weights: `saliencies` says of each weight of the tensors named how much it matters."""

    name: str
    help: str
    saliencies: Callable[[Hydra, ScoringData, Sequence[str], int], Saliencies]


def _oba(model: Hydra, data: ScoringData, names: Sequence[str], order: int) -> Saliencies:
    from hydractl.circuit.oba import saliencies

    return saliencies(model, data, names, order)


WEIGHT_METHODS = (
    WeightMethod(
        "oba",
        "not heads but single weights, those with the lowest saliency by products of the loss's Hessian with all "
        "weights, set to zero and kept there by finetune",
        _oba,
    ),
)
