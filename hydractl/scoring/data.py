"""The samples that heads are scored on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hydractl.data.batches import Batch
from hydractl.data.ranks import Ranks
from hydractl.model.hydra import Hydra


@dataclass(frozen=True, eq=False)
class ScoringData:
    """Labelled ID samples and, for what compares the two, OOD ones; in batches that are the same on every rank.

    Attributes:
        id: batches of the ID samples, in any order; a search asks for them in every round.
        id_samples: N, how many samples they hold.
        ood: batches of the OOD samples, which need no labels.
        ood_samples: N'.
        ood_sets: how many samples each OOD set holds, in the order of their positions; one set of all where empty.
        prompts: batches of a zero-shot model's class prompts.
    """

    id: Sequence[Batch]
    id_samples: int
    ood: Sequence[Batch] = ()
    ood_samples: int = 0
    prompts: Sequence[Mapping[str, Tensor]] = ()
    ranks: Ranks = field(default_factory=Ranks)
    ood_sets: tuple[int, ...] = ()

    @property
    def all_prompts(self) -> dict[str, Tensor]:
        """The class prompts in one batch, `[C,T]`; nothing for a model that has none."""
        return {name: torch.cat([batch[name] for batch in self.prompts]) for name in next(iter(self.prompts), ())}


def prompt_batches(model: Hydra, batch_size: int) -> list[dict[str, Tensor]]:
    """The class prompts of a zero-shot model in batches; none of any other."""
    prompts = model.class_prompts or {}
    count = len(next(iter(prompts.values()), ()))
    return [
        {name: tensor[start : start + batch_size] for name, tensor in prompts.items()}
        for start in range(0, count, batch_size)
    ]
