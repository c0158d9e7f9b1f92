"""Separation: how far apart ID and OOD samples lie in a head's own output for the pooled token, kept heads or dropped.

Source: [HE] B.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.checkpoint.heads import Head, member_heads
from hydractl.circuit.objective import ScoringData
from hydractl.circuit.replay import kept_counts, pooled
from hydractl.data.batching import Batch
from hydractl.data.ranks import Ranks, batch_workers
from hydractl.errors import OptionError
from hydractl.model.encoder import Tower, mean_token
from hydractl.model.hydra import Hydra

#: Heads that a picture shows of those dropped first, and of those dropped last.
SHOWN = 6


@dataclass(frozen=True)
class Separation:
    """The distance between the centroids of ID and OOD samples in one head's output."""

    euclidean: float  # in the units of the head's output
    mahalanobis: float  # in standard deviations of the ID samples; 0 along directions in which these do not vary

    @property
    def mean(self) -> float:
        """Both distances averaged."""
        return (self.euclidean + self.mahalanobis) / 2


def separations(model: Hydra, data: ScoringData) -> dict[Head, Separation]:
    """Returns the separation of ID from OOD samples by each head of the tower that reads the samples.

    Args:
        model: of one member.
    """
    tower = model.spec.towers[0].name
    counts, width = kept_counts(model, tower), model.spec.tower(tower).head_width
    id_mean, id_covariance = _moments(model, data.id, tower, data.ranks)
    ood_mean, _ = _moments(model, data.ood, tower, data.ranks)
    gaps = (id_mean - ood_mean).split([count * width for count in counts])
    by_head = {}
    covariances = iter(id_covariance)
    for layer, gap in enumerate(gaps):
        for place, head in enumerate(model.heads[tower][layer][0]):
            head_gap = gap[place * width : (place + 1) * width]
            squared = head_gap @ torch.linalg.pinv(next(covariances), hermitian=True) @ head_gap
            by_head[Head(tower, layer, head)] = Separation(float(head_gap.norm()), float(squared.clamp(min=0).sqrt()))
    return by_head


def extremes(scores: Mapping[Head, float], count: int = 2) -> dict[Head, str]:
    """Returns the `count` heads with the highest (`most`) and lowest (`least`) scores, highest first."""
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    count = max(1, min(count, len(ranked) // 2))
    return dict.fromkeys(ranked[:count], "most") | dict.fromkeys(ranked[count:][-count:], "least")


def outputs_of(
    model: Hydra, batches: Sequence[Batch], heads: Sequence[Head], samples: int, ranks: Ranks
) -> dict[Head, NDArray[np.float64]]:
    """Returns the outputs of some heads of one tower, `[N,K]` in the order of the samples.

    Args:
        batches: of all samples, in any order.
        samples: N.
    """
    tower = heads[0].tower
    width = model.spec.tower(tower).head_width
    kept = [head for head in member_heads(model.heads, 0) if head.tower == tower]
    places = [kept.index(head) for head in heads]
    outputs = torch.zeros(samples, len(heads), width, dtype=torch.float64)

    def own(number: int) -> tuple[Tensor, Tensor]:
        every = head_outputs(model, batches[number], tower).unflatten(1, (len(kept), width))
        return batches[number].positions, every[:, places]

    with batch_workers(next(model.parameters()).device) as in_parallel:
        for positions, values in in_parallel(own, range(ranks.rank, len(batches), ranks.size)):
            outputs[positions] = values
    gathered = ranks.total(outputs).numpy()
    return {head: gathered[:, place] for place, head in enumerate(heads)}


def head_outputs(model: Hydra, batch: Batch, tower: str) -> Tensor:
    """Returns every head's output at the pooled token, `[B,sum H*K]` float64; the mean if all tokens are pooled."""
    module = model.get_submodule(tower)
    assert isinstance(module, Tower)
    device = next(model.parameters()).device
    inputs = {name: tensor.to(device) for name, tensor in batch.inputs.items()}
    place, mask = module.place(inputs.get("input_ids")), inputs.get("attention_mask")
    seen: list[Tensor] = []

    def view(_number: int, z: Tensor) -> Tensor:
        seen.append((mean_token(z, mask) if place is None else place.of(z)).mean(2)[0])
        return z

    with torch.inference_mode():
        pooled(module, inputs, view)
        return torch.cat(seen, -1).double().cpu()


def _moments(model: Hydra, batches: Sequence[Batch], tower: str, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """Mean `[sum H*K]` and each head's covariance `[sum H,K,K]` over samples; batches are added up in their order."""
    width = model.spec.tower(tower).head_width
    # Squares about a point among the samples, so that little is lost when the means are taken off.
    middle = head_outputs(model, batches[0], tower).mean(0)
    heads = len(middle) // width

    def sums(number: int) -> Tensor:
        centred = head_outputs(model, batches[number], tower) - middle
        apart = centred.unflatten(1, (heads, width))
        return torch.cat([
            torch.tensor([float(len(centred))], dtype=torch.float64),
            centred.sum(0),
            torch.einsum("bhi,bhj->hij", apart, apart).flatten(),
        ])  # fmt: skip

    mine = range(ranks.rank, len(batches), ranks.size)
    total = torch.zeros(1 + len(middle) + heads * width * width, dtype=torch.float64)
    with batch_workers(next(model.parameters()).device) as in_parallel:
        total = ranks.in_turn(in_parallel(sums, mine), total, len(batches))
    count, first, second = total.split([1, len(middle), heads * width * width])
    mean = (first / count).unflatten(0, (heads, width))
    squares = second.view(heads, width, width) - count * mean[:, :, None] * mean[:, None]
    return mean.flatten() + middle, squares / (count - 1).clamp(min=1)


@dataclass(frozen=True)
class Group:
    """The mean separation of some heads; None without heads."""

    heads: int  # their number
    euclidean: float | None
    mahalanobis: float | None


@dataclass(frozen=True)
class Separated:
    """Separation of ID from OOD samples by heads, kept ones against dropped ones."""

    heads: Mapping[Head, Separation]  # the separation of each head of the tower that reads the samples
    dropped: tuple[Head, ...]  # those that the circuit drops, first dropped first
    last: Mapping[str, Group]  # the two groups, `kept` and `dropped`, in the last layer, where the paper looks
    all: Mapping[str, Group]  # the same over all layers


def separated(gaps: Mapping[Head, Separation], ranking: Sequence[Head]) -> Separated:
    """Averages over the heads that a circuit keeps and drops.

    Args:
        gaps: the separation of each head.
        ranking: the dropped heads, first dropped first; those of a tower that reads no sample are ignored.

    Raises:
        OptionError: the circuit drops none of the heads, or all of them.
    """
    dropped = tuple(head for head in ranking if head in gaps)
    if not dropped or len(dropped) == len(gaps):
        which = "all" if dropped else "none"
        raise OptionError(f"the circuit drops {which} of the {len(gaps)} heads: there is nothing to compare them with")
    top = max(head.layer for head in gaps)
    groups = {
        "kept": [head for head in gaps if head not in dropped],
        "dropped": [head for head in gaps if head in dropped],
    }
    every = {name: _group([gaps[head] for head in heads]) for name, heads in groups.items()}
    last = {name: _group([gaps[head] for head in heads if head.layer == top]) for name, heads in groups.items()}
    return Separated(gaps, dropped, last, every)


def shown_heads(dropped: Sequence[Head]) -> tuple[list[Head], list[Head]]:
    """Returns up to SHOWN of the heads dropped first and up to SHOWN of those dropped last; no head is in both."""
    count = min(SHOWN, max(1, len(dropped) // 2))
    return list(dropped[:count]), list(dropped[count:][-count:])


def _group(members: Sequence[Separation]) -> Group:
    if not members:
        return Group(0, None, None)
    return Group(len(members), fmean(m.euclidean for m in members), fmean(m.mahalanobis for m in members))
