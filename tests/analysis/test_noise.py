"""Proposition 1 on tiny networks: each number against autograd's Hessian, differences, or a zeroed head."""

from collections.abc import Callable
from dataclasses import replace
from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from hydractl.analysis.noise import NoiseAnalysis, analyse_noise, mean_loss, random_signs
from hydractl.checkpoint.heads import Head
from hydractl.circuit.objective import ScoringData
from hydractl.errors import DataError, OptionError
from hydractl.model.hydra import Hydra
from tests.circuit.conftest import ID, Case, batches, case, vit

__all__ = ["case", "vit"]  # fixtures
DROPPED = {"vit": {Head("vision", 1, 2)}, "bert": {Head("text", 0, 1)}, "clip": {Head("text", 2, 0)}}


def noisy(case: Case) -> ScoringData:
    """The OOD samples, with labels of their own."""
    return replace(case, id_inputs=case.ood_inputs, labels=torch.arange(11) % 5).data(6)


def analysed(case: Case, draws: int = 3, seed: int = 0) -> NoiseAnalysis:
    dropped = DROPPED[case.reference.name]
    return analyse_noise(case.model, dropped, case.data(), [("fog", 3, noisy(case))], draws, seed)


def pieces(case: Case) -> list[tuple[str, tuple[slice, ...]]]:
    """The names of the parameters that count and what pruning takes of each, in the table's order: no bias of keys."""
    (head,) = DROPPED[case.reference.name]
    width = case.model.spec.tower(head.tower).head_width
    rows = slice(head.head * width, (head.head + 1) * width)
    prefix = f"{head.tower}.layers.{head.layer}.attention"
    names = [f"{prefix}.{name}" for name in ("q.weight", "q.bias", "k.weight", "v.weight", "v.bias")]
    return [(name, (rows,)) for name in names] + [(f"{prefix}.o.weight", (slice(None), rows))]


def loss_of(case: Case, data: ScoringData) -> Callable[[Tensor], Tensor]:
    """The mean loss as a function of the weights that pruning takes, one after the other."""
    model, taken = case.model, pieces(case)
    sizes = [model.get_parameter(name)[place].numel() for name, place in taken]

    def loss(flat: Tensor) -> Tensor:
        changed = {}
        for (name, place), values in zip(taken, flat.split(sizes), strict=True):
            changed[name] = model.get_parameter(name).detach().clone()
            changed[name][place] = values.view(changed[name][place].shape)
        total = torch.zeros((), dtype=torch.float64)
        for batch in data.id:
            inputs = {**batch.inputs, **data.all_prompts}
            logits = torch.func.functional_call(model, changed, (), inputs).member_logits[0]
            total = total + F.cross_entropy(logits, batch.labels, reduction="sum")
        return total / data.id_samples

    return loss


def taken_weights(case: Case) -> Tensor:
    return torch.cat([case.model.get_parameter(name)[place].flatten() for name, place in pieces(case)])


def curved(case: Case, data: ScoringData, direction: Tensor) -> Tensor:
    """The Hessian over the weights that pruning takes, times a direction."""
    with sdpa_kernel(SDPBackend.MATH):
        return torch.autograd.functional.vhp(loss_of(case, data), taken_weights(case), direction)[1]


def zeroed(case: Case) -> Hydra:
    """The network with the head's columns of the output projection at zero."""
    (head,) = DROPPED[case.reference.name]
    width = case.model.spec.tower(head.tower).head_width
    weight = case.model.get_parameter(f"{head.tower}.layers.{head.layer}.attention.o.weight")
    weight.data[:, head.head * width : (head.head + 1) * width] = 0
    return case.model


def test_slopes_are_derivatives_along_what_pruning_takes(case: Case) -> None:
    found = analysed(case)
    weights, step = taken_weights(case), 1e-5
    for data, slope in ((case.data(), found.clean.slope), (noisy(case), found.noisy[0].slope)):
        loss = loss_of(case, data)
        towards, away = (float(loss(weights * (1 - sign * step))) for sign in (1, -1))
        assert slope == pytest.approx((towards - away) / (2 * step), rel=1e-6, abs=1e-9)


def test_losses_are_those_with_the_head_turned_off(case: Case) -> None:
    found = analysed(case)
    before = [float(loss_of(case, data)(taken_weights(case))) for data in (case.data(), noisy(case))]
    after = [mean_loss(zeroed(case), data) for data in (case.data(), noisy(case))]
    for losses, dense, pruned in zip((found.clean, found.noisy[0]), before, after, strict=True):
        assert (losses.dense, losses.pruned) == pytest.approx((dense, pruned), abs=1e-10)
        assert losses.gap == pytest.approx(pruned - dense, abs=1e-10)


def test_draws_are_products_with_the_hessian(case: Case) -> None:
    found = analysed(case, draws=3, seed=4)
    weights = len(taken_weights(case))
    assert (found.dropped, found.weights, found.draws) == (1, weights, 3)
    signs = [random_signs(weights, 4, draw, torch.device("cpu")) for draw in range(3)]
    drawn = torch.stack([v * (curved(case, noisy(case), v) - curved(case, case.data(), v)) for v in signs])
    (effect,) = found.noisy
    assert effect.curvature.value == pytest.approx(float(drawn.mean()), abs=1e-9)
    assert effect.curvature.error == pytest.approx(float(drawn.mean(1).std()) / sqrt(3), abs=1e-9)
    assert effect.positive.value == pytest.approx(float((drawn.mean(0) > 0).double().mean()), abs=1e-12)
    shares = torch.stack([(drawn[[i for i in range(3) if i != left]].sum(0) > 0).double().mean() for left in range(3)])
    assert effect.positive.error == pytest.approx(sqrt(2 / 3 * float((shares - shares.mean()).square().sum())))


def test_each_sample_is_seen_twice_and_gradients_are_off_again(vit: Case) -> None:
    seen: list[int] = []
    analyse_noise(vit.model, DROPPED["vit"], vit.data(5), [("fog", 3, noisy(vit))], draws=2, progress=seen.append)
    assert sum(seen) == 2 * (ID + 11)
    assert not any(parameter.requires_grad for parameter in vit.model.parameters())


def test_what_is_refused(vit: Case) -> None:
    with pytest.raises(OptionError, match="pruning took no head"):
        analyse_noise(vit.model, set(), vit.data(), [], 4)
    unlabelled = ScoringData(batches(vit.id_inputs, None, 5), ID)
    with pytest.raises(DataError, match="no labels"):
        analyse_noise(vit.model, DROPPED["vit"], unlabelled, [], 2)
