"""Pruning on noisy data beside pruning on clean data: the paper's first proposition, B.1.

    python analyses/noise.py MODEL PRUNED --corrupt noise:5 --id-data digits:test [--draws N]

Pruning changes the weights by dtheta: for every dropped head, it sets the rows of W_Q, W_K and W_V and the columns of
W_O to zero. To second order it changes a loss L by <grad L, dtheta> + 1/2 dtheta^T H dtheta. By the proposition, if
the gradient of the loss on noisy data has a positive inner product with dtheta, and diag(H_n - H_t) is positive (n for
noisy, t for clean), the loss grows by more on noisy data.

The diagonal covers only the weights that pruning removes. It is estimated: for random signs v, the mean of v * (H v) is
the diagonal of H (Hutchinson 1990; Bekas et al. 2007). Both losses use the same signs.

Source: arXiv 2510.18358, Proposition 1 and B.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from shared import Analysis, arguments, show
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, member_heads, without
from hydractl.checkpoint.layout import remaining
from hydractl.checkpoint.slots import slots
from hydractl.circuit.objective import ScoringData
from hydractl.circuit.saliency import cross_entropies, mean_gradients
from hydractl.data.corruptions import corrupted, parse_corruptions
from hydractl.data.ranks import Ranks
from hydractl.data.reading import Reading
from hydractl.drawing import INK, Key, explained, line, line_keys, panels, styled, whole_numbers
from hydractl.inputs.models import as_member
from hydractl.inputs.search_data import open_material
from hydractl.model.hydra import Hydra, without_heads
from hydractl.run_options import Compute
from hydractl.surgery.slicing import drop_heads
from hydractl.text import aligned
from hydractl.watch import LOG

#: Draws are summed in groups, so that a jackknife can estimate the standard error.
GROUPS = 8
#: It adds the same to a query's products with every key, so softmax cancels it: no loss depends on it, and the sign of
#: its curvature would be a rounding error.
KEY_BIAS = ".attention.k.bias"


@dataclass(frozen=True)
class Estimate:
    """A number estimated from random draws, and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class PruningEffect:
    """Effect of pruning on the loss, the mean cross-entropy in nats."""

    # dense, pruned: the losses of the network and of its pruned version
    dense: float
    pruned: float
    gap: float  # the second less the first
    slope: float  # <grad L, dtheta>; positive: the loss grows, to first order


@dataclass(frozen=True)
class NoiseEffect:
    """Effect of pruning on data with one kind of noise; see `PruningEffect`."""

    kind: str
    severity: int
    dense: float
    pruned: float
    gap: float
    slope: float
    curvature: Estimate  # the mean of diag(H_n - H_t)
    # The share of its entries that are positive, 0..1. Few draws bias it towards one half.
    positive: Estimate


@dataclass(frozen=True)
class NoiseAnalysis:
    """Effect of pruning on clean data and on each kind of noise."""

    dropped: int  # the number of dropped heads
    weights: int  # the number of their weights, without key biases, on which no loss depends
    draws: int  # the number of random signs for each estimate
    clean: PruningEffect
    noisy: tuple[NoiseEffect, ...]


class _Diagonal(NamedTuple):
    """Draws of v * (H v): their sums by group, `[GROUPS,W]`, and the mean over weights of each, `[draws]`."""

    sums: Tensor
    means: Tensor


def measure(
    model: Hydra,
    dropped: Set[Head],
    clean: ScoringData,
    noisy: Iterable[tuple[str, int, ScoringData]],
    draws: int,
    seed: int = 0,
) -> NoiseAnalysis:
    """Measures how dropping some heads changes the loss on clean data, and on noisy data of each kind.

    Args:
        model: of one member, as it was loaded.
        clean: labelled samples.
        noisy: kind, severity and samples of each shift, read one after the other.
        draws: of random signs, at least 2; errors fall with the square root.
        seed: of the signs.

    Raises:
        SystemExit: no head is dropped.
        DataError: samples without labels.
    """
    if not dropped:
        raise SystemExit("pruning took no head: there is nothing to analyse")
    masks = _removed(model, dropped)
    pruned = without_heads(model, dropped)

    def measured(data: ScoringData) -> tuple[PruningEffect, _Diagonal]:
        before, after = mean_loss(model, data), mean_loss(pruned, data)
        effect = PruningEffect(before, after, after - before, _slope(model, masks, data))
        diagonal = _diagonal(model, masks, data, draws=draws, seed=seed)
        return effect, diagonal

    at_rest, base = measured(clean)
    effects = []
    for kind, severity, data in noisy:
        effect, diagonal = measured(data)
        curvature, positive = _difference(diagonal, base)
        effects.append(NoiseEffect(kind, severity, **vars(effect), curvature=curvature, positive=positive))
    return NoiseAnalysis(len(dropped), base.sums.shape[1], draws, at_rest, noisy=tuple(effects))


@torch.no_grad()
def mean_loss(model: Hydra, data: ScoringData) -> float:
    """Returns the mean cross-entropy of a model of one member, nats."""
    device, prompts = next(model.parameters()).device, data.all_prompts
    total = sum(cross_entropies(model, batch, prompts, device).double().sum() for batch in data.id)
    return float(total) / data.id_samples


def heads_taken(dense: Checkpoint, pruned: Checkpoint) -> frozenset[Head]:
    """Returns the heads that `pruned` lacks; its weights must be those of the other network.

    Args:
        dense, pruned: of one member each.

    Raises:
        SystemExit: another shape, heads that the other lacks, or other weights, as after fine-tuning.
    """
    if dense.spec != pruned.spec:
        raise SystemExit(
            f"{pruned.name}: was not pruned from {dense.name}, whose layers or sizes differ: name its source"
        )
    kept, left = (set(member_heads(checkpoint.heads, 0)) for checkpoint in (dense, pruned))
    if more := left - kept:
        raise SystemExit(f"{pruned.name}: has {min(more)}, which {dense.name} lacks: swap the two models")
    gone = frozenset(kept - left)
    expected = drop_heads(dense, gone).tensors
    for name, tensor in pruned.tensors.items():
        if not torch.equal(tensor.load(), expected[name].load().to(tensor.dtype)):
            raise SystemExit(
                f"{pruned.name}: {name} differs from that of {dense.name}: name the pruned model before fine-tuning"
            )
    return gone


def _removed(model: Hydra, dropped: Set[Head]) -> dict[str, Tensor]:
    """Returns a mask of the entries that pruning removes, for each parameter that loses any."""
    layout, masks = replace(model.layout, heads=without(model.heads, dropped)), {}
    for name, slot in slots(model.spec).items():
        before, after = (each.division(slot, model.spec) for each in (model.layout, layout))
        kept = remaining(before, after)
        if kept is not None and before is not None and not name.endswith(KEY_BIAS):
            mask = torch.ones_like(model.get_parameter(name), dtype=torch.bool)
            still_there = torch.tensor(list(kept), device=mask.device, dtype=torch.long)
            masks[name] = mask.index_fill_(before.axis, still_there, False)
    return masks


def _slope(model: Hydra, masks: Mapping[str, Tensor], data: ScoringData) -> float:
    """Returns <grad L, dtheta>; dtheta is minus the removed weights."""
    weights = [model.get_parameter(name) for name in masks]
    gradients = mean_gradients(model, data, weights)
    terms = zip(masks.values(), weights, gradients, strict=True)
    return -float(sum((weight[mask].double() * gradient[mask]).sum() for mask, weight, gradient in terms))


def _diagonal(model: Hydra, masks: Mapping[str, Tensor], data: ScoringData, draws: int, seed: int) -> _Diagonal:
    device, prompts = next(model.parameters()).device, data.all_prompts
    weights = [model.get_parameter(name) for name in masks]
    sizes = [int(mask.sum()) for mask in masks.values()]
    sums = torch.zeros(GROUPS, sum(sizes), dtype=torch.float64, device=device)
    means = torch.zeros(draws, dtype=torch.float64, device=device)
    with _differentiable(weights):
        for batch in data.id:
            loss = cross_entropies(model, batch, prompts, device).sum() / data.id_samples
            gradients = torch.autograd.grad(loss, weights, create_graph=True)
            for draw in range(draws):
                signs = random_signs(sum(sizes), seed, draw, device)
                along = [
                    torch.zeros_like(weight).masked_scatter_(mask, sign.to(weight.dtype))
                    for mask, sign, weight in zip(masks.values(), signs.split(sizes), weights, strict=True)
                ]
                products = torch.autograd.grad(gradients, weights, along, retain_graph=True, materialize_grads=True)
                removed = [product[mask] for mask, product in zip(masks.values(), products, strict=True)]
                drawn = signs * torch.cat(removed).double()
                sums[draw % GROUPS] += drawn
                means[draw] += drawn.mean()
    return _Diagonal(sums, means)


def random_signs(count: int, seed: int, draw: int, device: torch.device) -> Tensor:
    """Returns `[count]` float64 of -1 and 1, the same for a seed and draw on every device."""
    # Far apart, so that no draw of one seed is a draw of the next.
    generator = torch.Generator().manual_seed((seed * 1_000_003 + draw) % 2**63)
    return (torch.randint(0, 2, (count,), generator=generator, dtype=torch.int8) * 2 - 1).to(device, torch.float64)


@contextmanager
def _differentiable(weights: Sequence[Tensor]) -> Iterator[None]:
    """Lets gradients of gradients be taken with respect to these weights."""
    for weight in weights:
        weight.requires_grad_(True)
    try:
        # The only attention that can be differentiated twice.
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        for weight in weights:
            weight.requires_grad_(False)


def _difference(noisy: _Diagonal, clean: _Diagonal) -> tuple[Estimate, Estimate]:
    """Returns the mean of diag(H_n - H_t), and the share of its entries that are positive."""
    means, sums = noisy.means - clean.means, noisy.sums - clean.sums
    draws = len(means)
    mean = Estimate(float(means.mean()), float(means.std()) / sqrt(draws))
    total = sums.sum(0)
    groups = min(GROUPS, draws)
    left = torch.stack([(total - sums[group] > 0).double().mean() for group in range(groups)])
    # The jackknife: the spread of estimates that each leave out one group of draws.
    error = sqrt((groups - 1) / groups * float((left - left.mean()).square().sum()))
    return mean, Estimate(float((total > 0).double().mean()), error)


def noise(
    model: Any, pruned: Any, corrupt: str, id_data: Any, *, draws: int = 16, limit: int | None = None
) -> Analysis:
    """Measures a network and the same after `prune`, on clean images and on corrupted ones.

    Args:
        draws: of random signs for the estimate of the curvature; its error is reported.
    """
    checkpoint, size = as_member(model), 16  # gradients of gradients keep every activation of a batch
    dropped, compute = heads_taken(checkpoint, as_member(pruned)), Compute(batch_size=size)
    material = open_material(checkpoint, id_data, None, reading=Reading(limit=limit), compute=compute, watch=LOG)
    noisy = (
        (kind.name, severity, replace(material, id=corrupted(material.id, kind, severity)).scoring_data(size, Ranks()))
        for kind, severity in parse_corruptions(corrupt)
    )
    analysis = measure(material.model, dropped, material.scoring_data(size, Ranks()), noisy, draws)
    return Analysis(list(lines(analysis)), asdict(analysis), lambda: picture(analysis))


def lines(analysis: NoiseAnalysis) -> Iterator[str]:
    """Yields a line for clean data, one for each kind and severity, and their mean."""
    clean = analysis.clean
    rows = [["", "loss", "gap", "slope", "curvature", "positive"]]
    rows.append(["clean", f"{clean.dense:.4f}", f"{clean.gap:+.4f}", f"{clean.slope:+.3g}", "", ""])
    for shift in analysis.noisy:
        curvature, positive = shift.curvature, shift.positive
        rows.append(
            [
                f"{shift.kind} {shift.severity}",
                f"{shift.dense:.4f}",
                f"{shift.gap:+.4f}",
                f"{shift.slope:+.3g}",
                f"{curvature.value:+.2g} ± {curvature.error:<6.1g}",
                f"{positive.value:.1%} ± {positive.error:.1%}",
            ]
        )
    means = [(shift.gap, shift.slope, shift.curvature.value) for shift in analysis.noisy]
    gap, slope, curve = np.mean(means, 0)
    rows.append(["mean", "", f"{gap:+.4f}", f"{slope:+.3g}", f"{curve:+.2g}   {'':6}", ""])
    yield from aligned(rows)
    yield "in nats; gap: pruned network's loss minus the model's; slope: <grad L, dtheta>;"
    yield "curvature: mean of diag(H_n - H_t); positive: share of weights above 0;"
    yield f"± one standard error of {analysis.draws} draws; {analysis.dropped} heads of {analysis.weights} weights"


@styled
def picture(analysis: NoiseAnalysis) -> Figure:
    """Returns four panels over severity with a line for each kind: gap, inner product, curvature and its sign."""
    kinds = list(dict.fromkeys(shift.kind for shift in analysis.noisy))
    clean = analysis.clean
    # Title, unit, value on clean data, and the number of an effect with its standard error.
    measures: tuple[tuple[str, str, float, Callable[[NoiseEffect], tuple[float, float]]], ...] = (
        ("loss gap of pruning", "nats", clean.gap, lambda shift: (shift.gap, 0)),
        ("<grad L, dtheta>", "nats", clean.slope, lambda shift: (shift.slope, 0)),
        ("mean diag(H_n - H_t)", "curvature", 0, lambda shift: astuple(shift.curvature)),
        ("positive diag(H_n - H_t)", "share of weights", 0.5, lambda shift: astuple(shift.positive)),
    )
    figure, every = panels([title for title, *_ in measures])
    for axes, (_, unit, at_rest, of) in zip(every, measures, strict=True):
        axes.axhline(at_rest, color=INK, linewidth=1, linestyle=":")
        for number, kind in enumerate(kinds):
            shifts = [shift for shift in analysis.noisy if shift.kind == kind]
            values, errors = zip(*map(of, shifts), strict=True)
            axes.errorbar(
                [shift.severity for shift in shifts], values, errors, marker="o", markersize=4, **line(number)
            )
        axes.set(xlabel="severity", ylabel=unit)
        whole_numbers(axes.xaxis)
    return explained(figure, [Key("clean, or no difference", INK, ":"), *line_keys(kinds)])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("pruned", help="the same after `prune`, not fine-tuned")
    parser.add_argument("--corrupt", required=True, metavar="KIND,...[:1-5]")
    parser.add_argument("--id-data", required=True)
    parser.add_argument("--draws", type=int, default=16)
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    data = {"id_data": options.id_data, "draws": options.draws, "limit": options.limit}
    show(noise(options.model, options.pruned, options.corrupt, **data), options)


if __name__ == "__main__":
    main()
