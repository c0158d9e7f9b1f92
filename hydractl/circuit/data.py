"""The samples that heads are scored on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hydractl.data.batching import Batch
from hydractl.data.ranks import Ranks


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
    def tasks(self) -> tuple[ScoringData, ...]:
        """These samples, as one task among several."""
        return (self,)

    @property
    def all_prompts(self) -> dict[str, Tensor]:
        """The class prompts in one batch, `[C,T]`; nothing for a model that has none."""
        return {name: torch.cat([batch[name] for batch in self.prompts]) for name in next(iter(self.prompts), ())}


@dataclass(frozen=True, eq=False)
class SeveralTasks:
    """The samples of several tasks, each with prompts of its own: what one network is measured on in the mean."""

    tasks: tuple[ScoringData, ...]

    @property
    def id_samples(self) -> int:
        """How many ID samples all tasks hold."""
        return sum(task.id_samples for task in self.tasks)

    @property
    def ood_samples(self) -> int:
        """How many OOD samples all tasks hold."""
        return sum(task.ood_samples for task in self.tasks)

    @property
    def ranks(self) -> Ranks:
        """The processes at work, the same for all tasks."""
        return self.tasks[0].ranks


#: What a search measures networks on.
SearchData = ScoringData | SeveralTasks


def prompt_batches(prompts: Mapping[str, Tensor] | None, batch_size: int) -> list[dict[str, Tensor]]:
    """The class prompts `[C,T]` of a zero-shot model in batches; none of any other."""
    given = prompts or {}
    count = len(next(iter(given.values()), ()))
    return [
        {name: tensor[start : start + batch_size] for name, tensor in given.items()}
        for start in range(0, count, batch_size)
    ]
