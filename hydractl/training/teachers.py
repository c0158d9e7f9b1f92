"""Distillation: what other networks say of a sample takes the place of its label, which then need not be known.

Source: Hinton et al. 2015, arXiv 1503.02531, but at no temperature for learning: probabilities are learnt as a network
gives them, by its fitted temperature where it has one, since what a member shall learn is how sure to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError
from hydractl.inference import load_checkpoint
from hydractl.model.hydra import Hydra
from hydractl.training.network import training_dtype


@dataclass(frozen=True, eq=False)
class Teachers:
    """Networks whose mean is learnt: of one member, Hydras, or several that make a Deep Ensemble."""

    checkpoints: Sequence[Checkpoint]
    networks: Sequence[Hydra]

    @classmethod
    def load(cls, checkpoints: Sequence[Checkpoint], device: torch.device) -> Teachers:
        """The networks with their weights in memory, in the dtypes that they are stored in, half precision widened."""
        return cls(checkpoints, [load_checkpoint(one, device, training_dtype(one)).eval() for one in checkpoints])

    @torch.no_grad()
    def probabilities(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The networks' mean `[B,C]`, each a mean of its members."""
        return torch.stack([network(**inputs).probabilities for network in self.networks]).mean(0)


def require_fit(teachers: Sequence[Checkpoint], network: Checkpoint) -> None:
    """Raises OptionError where a teacher is zero-shot, has other classes than a network, or reads samples otherwise."""
    for teacher in teachers:
        if teacher.spec.task == "zero-shot":
            raise OptionError(f"`teacher` {teacher.name}: is a zero-shot model: name a classifier")
        if teacher.spec.task != network.spec.task or teacher.labels != network.labels:
            raise OptionError(f"`teacher` {teacher.name}: has other classes than {network.name}")
        if teacher.preprocessing != network.preprocessing:
            raise OptionError(
                f"`teacher` {teacher.name}: reads its samples otherwise than {network.name}: name one of "
                "the same preprocessing"
            )


def taught_loss(logits: Tensor, probabilities: Tensor) -> Tensor:
    """The cross-entropy `[M,B]` of `[M,B,C]` logits to the `[B,C]` probabilities of teachers."""
    return -(probabilities * logits.log_softmax(-1)).sum(-1)
