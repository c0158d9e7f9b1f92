"""Measures how similar members are in their predictions and in their own weights.

Source: Muehlematter et al. 2024, arXiv 2405.14438 (LoRA-Ensemble); KL as in Fort et al. 2019, arXiv 1912.02757.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import is_adapted, slots
from hydractl.errors import OptionError
from hydractl.surgery.slicing import dense, split_members

Matrix = NDArray[np.float64]  # [M,M]


@dataclass(frozen=True, eq=False)
class Similarity:
    """Matrices `[M,M]` over pairs of members."""

    disagreement: Matrix  # share of samples with another most probable class, 0 to 1
    kl: Matrix  # nats, the mean over samples of KL(row || column) of their probabilities
    logits_cosine: Matrix  # mean over samples of the cosine of their logits, each sample's mean over classes subtracted
    weights_cosine: Matrix  # cosine of their changes to the weights of `weights_from`; NaN if one changed nothing
    weights_from: str  # "shared network" for members that adapt one, else "member 0"


def require_several(checkpoint: Checkpoint) -> None:
    """Raises OptionError for a checkpoint of one member."""
    if checkpoint.members < 2:
        raise OptionError(f"{checkpoint.name}: has one member: name a model with several")


def similarity(checkpoint: Checkpoint, member_logits: Tensor, temperature: float = 1.0) -> Similarity:
    """Measures how similar the members are.

    Args:
        checkpoint: of several members.
        member_logits: `[M,N,C]`, their logits.
        temperature: divides the logits before the softmax.
    """
    logits = member_logits.double()
    answers = logits.argmax(-1)
    logs = (logits / temperature).log_softmax(-1)
    p = logs.exp()
    # The mean over samples of sum p_i log p_i - sum p_i log p_j.
    own, cross = torch.einsum("inc,inc->i", p, logs), torch.einsum("inc,jnc->ij", p, logs)
    centred = torch.nn.functional.normalize(logits - logits.mean(-1, keepdim=True), dim=-1)
    samples = logits.shape[1]
    return Similarity(
        (answers[:, None] != answers).double().mean(-1).numpy(),
        ((own[:, None] - cross) / samples).clamp(min=0).numpy(),
        (torch.einsum("inc,jnc->ij", centred, centred) / samples).numpy(),
        weights_cosine=weights_cosine(checkpoint),
        weights_from="member 0" if checkpoint.spec.adapter is None else "shared network",
    )


def weights_cosine(checkpoint: Checkpoint) -> Matrix:
    """Returns the cosines of the members' changes to one network's weights, with one tensor in memory at a time."""
    total = torch.zeros(checkpoint.members, checkpoint.members, dtype=torch.float64)
    for changes in _changes(checkpoint):
        flat = changes.flatten(1)
        total += flat @ flat.T
    lengths = total.diagonal().sqrt()
    return (total / lengths / lengths[:, None]).numpy()  # NaN for members that changed nothing


def _changes(checkpoint: Checkpoint) -> Iterator[Tensor]:
    """Yields the members' changes `[M,...]` to each weight of the network, with heads in their original places."""
    members, adapter = split_members(checkpoint), checkpoint.spec.adapter
    for name, slot in slots(checkpoint.spec.plain).items():
        shared = name in checkpoint.shared
        # If members adapt a network, their other tensors, such as classifiers, do not change it.
        if shared if adapter is None else not (shared and is_adapted(adapter, name, slot)):
            continue
        own = torch.stack([dense(member, slot, member.tensors[name]).load().double() for member in members])
        yield own - (own[0] if adapter is None else dense(checkpoint, slot, checkpoint.tensors[name]).load().double())
