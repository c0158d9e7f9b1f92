"""What a score accepts, and what it finds, from fewer samples than features to many times as many."""

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import cache
from itertools import pairwise
from math import floor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch

from hydractl.errors import DataError
from hydractl.families.load import read_checkpoint
from hydractl.metrics.detection import ood_metrics
from hydractl.model.hydra import from_checkpoint
from hydractl.ood.fit import Fitting, score_samples, totals
from hydractl.ood.ood_scores import DEFAULT, OOD_SCORES
from hydractl.ood.score import FitSamples, flagged, typicality
from tests.conftest import build_reference
from tests.references import SIZES

pytestmark = pytest.mark.slow
WIDTH = SIZES["hidden_size"]
RATIOS = (0.3, 1, 2, 5, 20)  # samples by feature
ENOUGH = 5  # from which on no score may refuse
ACCEPT, FRESH, DRAWS = 0.8, 600, 10
FITTED = [row for row in OOD_SCORES if row.fit is not None]


def given(family: str, count: int, odd: bool) -> dict[str, torch.Tensor]:
    """Random inputs of a tiny network; odd ones are images of more contrast, and texts of a few words."""
    reference, generator = build_reference(family), torch.Generator().manual_seed(int(odd))
    made = {}
    for name, tensor in reference.inputs.items():
        shape = (count, *tensor.shape[1:])
        if tensor.is_floating_point():
            noise = torch.randn(shape, generator=generator, dtype=tensor.dtype)
            made[name] = noise * (1.5 if odd else 1) + (0.5 if odd else 0)
        elif name == "input_ids":
            made[name] = torch.randint(1, 4 if odd else int(tensor.max()), shape, generator=generator)
        else:
            made[name] = tensor[:1].expand(shape).clone()
    return made


@cache
def answers(family: str, odd: bool) -> FitSamples:
    """What the network says of them, in two classes that one of its logits tells apart."""
    with TemporaryDirectory() as folder:
        model = from_checkpoint(read_checkpoint(build_reference(family).save(Path(folder))))
    with torch.inference_mode():
        output = model(**given(family, 2 * FRESH, odd), every_layer=True)
    logits = output.member_logits.double().numpy()[..., :2]
    labels = (logits[0, :, 0] > np.median(logits[0, :, 0])).astype(np.int64)
    hidden = [layer.double().numpy() for layer in output.hidden]
    return FitSamples(logits, output.features.double().numpy(), labels, hidden, predicted=labels)


def measured(family: str, row: str, ratio: float) -> Mapping[str, np.ndarray]:
    """By draw of calibration samples: flagged shares of ID samples, by each layer too, AUROC, and what flags lose.

    They lose what is found less of OOD samples than where as many ID samples are flagged by a threshold of their own.
    """
    score = next(one for one in FITTED if one.name == row)
    known, odd = answers(family, False), answers(family, True)
    count, found = round(ratio * WIDTH), {"flagged": [], "layers": [], "auroc": [], "lost": []}
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(known.samples)
        fitting = Fitting(score, known.subset(order[:count]))
        held = fitting.held_out()
        fresh, outside = (
            score_samples(score, fitting.whole, some)
            for some in (known.subset(order[-FRESH:]), odd.subset(order[:FRESH]))
        )
        found["flagged"].append(_flagged(totals(fresh), totals(held)))
        if fresh.ndim == 2:
            found["layers"].append([_flagged(*pair) for pair in zip(fresh[:-1], held[:-1], strict=True)])
        right = np.quantile(totals(fresh), ACCEPT)
        found["lost"].append((totals(outside) > right).mean() - _flagged(totals(outside), totals(held)))
        found["auroc"].append(ood_metrics(totals(fresh), totals(outside)).auroc)
    return {name: np.array(values) for name, values in found.items()}


def _flagged(scores: np.ndarray, quantiles: np.ndarray) -> float:
    typical = typicality(torch.from_numpy(scores), torch.from_numpy(np.sort(quantiles)))
    return float(flagged(typical, ACCEPT).double().mean())


def chance(count: int) -> tuple[float, float]:
    """The share of new samples that exact quantiles of so many flag, and three errors of its mean over draws."""
    share = floor((1 - ACCEPT) * (count + 1) - 1e-9) / (count + 1)
    return share, 3 * (0.16 / DRAWS * (1 / (count + 2) + 1 / FRESH)) ** 0.5


@pytest.mark.parametrize("family", ["vit", "bert"])
@pytest.mark.parametrize("row", [row.name for row in FITTED])
def test_flags_the_promised_share_whatever_the_number_of_samples(family: str, row: str) -> None:
    found = {}
    for ratio in RATIOS:
        with suppress(DataError) if ratio < ENOUGH else nullcontext():
            found[ratio] = measured(family, row, ratio)
    for ratio, one in found.items():
        share, error = chance(round(ratio * WIDTH))
        assert abs(one["flagged"].mean() - share) < error, ratio
        if ratio >= ENOUGH:  # of fewer samples, one quantile more or less is much of the OOD samples
            assert one["lost"].mean() < 0.1, ratio
    aurocs = [one["auroc"].mean() for one in found.values()]
    if not row.startswith("relative"):  # less the distance to all samples, which more of them sharpen
        assert all(more > less - 0.05 for less, more in pairwise(aurocs)), aurocs


@pytest.mark.parametrize("family", ["vit", "bert"])
@pytest.mark.parametrize("ratio", RATIOS[1:])
def test_each_layer_of_a_profile_keeps_the_promise(family: str, ratio: float) -> None:
    share, error = chance(round(ratio * WIDTH))
    layers = measured(family, DEFAULT, ratio)["layers"].mean(0)
    assert len(layers) == SIZES["num_hidden_layers"]
    assert abs(layers - share).max() < error
