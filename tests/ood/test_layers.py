"""The score over all layers: its formula against scikit-learn, its layers against transformers, and its promise."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf, ledoit_wolf
from torch.testing import assert_close

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.ood.fit import Fitting, score_samples
from hydractl.ood.layers import ALL_LAYERS
from hydractl.ood.score import FitSamples, as_state
from hydractl.ood.statistics import left_out_distances, unit_length
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads
from tests.conftest import build_reference
from tests.references import Reference

COUNT, WIDTH, LAYERS = 60, 6, 3


def samples(count: int, seed: int, members: int = 1, shared: int = 0) -> FitSamples:
    """Features and hidden states of a network of three layers, `shared` of which have one copy for all members."""
    generator = np.random.default_rng(seed)
    spread = np.linspace(0.2, 2, WIDTH)
    hidden = [
        generator.normal(size=(1 if layer < shared else members, count, WIDTH)) * spread + layer
        for layer in range(LAYERS - 1)
    ]
    features = generator.normal(size=(members, count, WIDTH)) * spread
    return FitSamples(np.zeros((members, count, 2)), features, hidden=hidden)


def distances(fits: list[np.ndarray], rows: list[np.ndarray]) -> np.ndarray:
    """Squared distances `[N]` by scikit-learn, the mean over copies, each with its own fit; vectors at length 1."""
    each = [
        LedoitWolf().fit(unit_length(one)).mahalanobis(unit_length(other))
        for one, other in zip(fits, rows, strict=True)
    ]
    return np.mean(each, axis=0)


@pytest.mark.parametrize("shared", [0, 1, 2])
def test_equals_scikit_learn_layer_by_layer(shared: int) -> None:
    known, fresh = samples(COUNT, 0, 2, shared), samples(30, 1, 2, shared)
    state = as_state(ALL_LAYERS.fit(known))
    found = score_samples(ALL_LAYERS, state, fresh)
    layers = [(*pair,) for pair in zip([*known.hidden, known.features], [*fresh.hidden, fresh.features], strict=True)]
    for number, (inside, outside) in enumerate(layers):
        # Location and scale are those of samples left out: here by a fit on the others, one after the other.
        others = [[np.delete(one, n, 0) for one in inside] for n in range(COUNT)]
        held = np.concatenate([distances(one, [x[n : n + 1] for x in inside]) for n, one in enumerate(others)])
        assert state["location"][number].item() == pytest.approx(np.log(held).mean(), abs=0.01)
        assert state["scale"][number].item() == pytest.approx(np.log(held).std(), rel=0.02)
        expected = np.log(distances(list(inside), list(outside)))
        theirs = (expected - state["location"][number].item()) / state["scale"][number].item()
        np.testing.assert_allclose(found[number], theirs, rtol=1e-9, atol=1e-9)
    assert state["hidden_whiten"].shape[0] == shared + 2 * (2 - shared)


def test_leaving_out_one_sample_is_a_fit_on_the_others() -> None:
    rows = samples(20, 2).features[0]
    share, mean = ledoit_wolf(rows)[1], np.var(rows, axis=0).mean()
    for place, row in enumerate(rows):
        others = np.delete(rows, place, 0)
        covariance = (1 - share) * np.cov(others.T, bias=True) + share * mean * np.eye(WIDTH)
        away = row - others.mean(0)
        expected = away @ np.linalg.solve(covariance, away)
        assert left_out_distances(rows)[place] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("count", [12, 40, 150])
def test_accepts_the_promised_share_of_new_samples_whatever_their_number(count: int) -> None:
    accepted, measured = [], []
    for seed in range(12):
        fitting = Fitting(ALL_LAYERS, samples(count, seed))
        quantiles = np.sort(fitting.held_out()[0].sum(0))
        fresh = score_samples(ALL_LAYERS, fitting.whole, samples(400, 100 + seed)).sum(0)
        typical = (1 + (quantiles >= fresh[:, None]).sum(-1)) / (count + 1)
        accepted.append((typical > 0.1).mean())
        measured.append(fitting.accepted(0.9) / count)
    # Twelve calibration sets: their own sampling error is what remains.
    error = 3 * (0.1 * 0.9 / (12 * count)) ** 0.5 + 1 / (count + 1)
    assert abs(np.mean(accepted) - 0.9) < error
    assert abs(np.mean(measured) - 0.9) < error + 0.02


def mean_tokens(reference: Reference) -> list[torch.Tensor]:
    """The mean over tokens that count of transformers' own hidden states, after each layer but the last."""
    with torch.no_grad():
        states = reference.model(**reference.inputs, output_hidden_states=True).hidden_states[1:-1]
    mask = reference.inputs.get("attention_mask")
    if mask is None:
        return [state[:, 1:].mean(1) for state in states]
    counts = mask[..., None].to(states[0].dtype)
    return [(state * counts).sum(1) / counts.sum(1) for state in states]


def cut(checkpoint: Checkpoint) -> Checkpoint:
    """Three members, which lost heads of the second layer alone: unevenly, and one of them all."""
    heads: list[Head] = [head for head in member_heads(checkpoint.heads, 0) if head.layer == 1]
    return fuse([drop_heads(checkpoint, heads[:number]) for number in (0, 1, len(heads))])


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("family", ["vit", "bert"])
def test_layers_are_those_of_transformers_and_a_trunk_has_one_copy(family: str, fast: bool, tmp_path: Path) -> None:
    reference = build_reference(family)
    checkpoint = read_checkpoint(reference.save(tmp_path / "one"))
    expected = mean_tokens(reference)
    for one, copies in ((checkpoint, 1), (cut(checkpoint), 3)):
        model = from_checkpoint(one)
        if fast:
            model.optimize_for_inference()
        hidden = model(**reference.inputs, every_layer=True).hidden
        assert len(hidden) == len(expected)
        for layer, (ours, theirs) in enumerate(zip(hidden, expected, strict=True)):
            assert len(ours) == (1 if layer < 1 else copies)
            assert_close(ours[0], theirs, rtol=0, atol=1e-10)  # the first member keeps every head
