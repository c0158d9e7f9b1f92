"""The score over all layers: its formula against scikit-learn, its layers against transformers, and its promise."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf, ledoit_wolf
from torch.testing import assert_close

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.ood.fit import score_samples
from hydractl.ood.layers import LAYERS
from hydractl.ood.score import FitSamples, as_state
from hydractl.ood.statistics import left_out_distances, unit_length
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import as_embedding, drop_heads
from hydractl.tasks.all_tasks import find_task, with_task
from hydractl.tasks.labels import Labels
from hydractl.tasks.numbers import Numbers
from hydractl.tasks.task import Answers
from tests.conftest import build_reference
from tests.references import Reference, uneven_members

COUNT, WIDTH, DEPTH = 60, 6, 3


def samples(count: int, seed: int, members: int = 1, shared: int = 0) -> FitSamples:
    """Features and hidden states of a network of three layers, `shared` of which have one copy for all members.

    Of four classes it never predicts one, and another once.
    """
    generator = np.random.default_rng(seed)
    spread, predicted = np.linspace(0.2, 2, WIDTH), np.where(np.arange(count) == 5, 3, np.arange(count) % 2)
    hidden = [
        generator.normal(size=(1 if layer < shared else members, count, WIDTH)) * spread + layer
        for layer in range(DEPTH - 1)
    ]
    features = generator.normal(size=(members, count, WIDTH)) * spread + 3 * predicted[:, None]
    return FitSamples(np.zeros((members, count, 2)), features, hidden=hidden, predicted=predicted)


def distances(known: np.ndarray, fresh: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
    """Squared distances `[n]` to the nearest mean by scikit-learn; without classes, of vectors at length 1."""
    if classes is None:
        known, fresh, classes = unit_length(known), unit_length(fresh), np.zeros(len(known))
    means = {label: known[classes == label].mean(0) for label in classes}
    fitted = LedoitWolf(assume_centered=True).fit(known - np.stack([means[label] for label in classes]))
    return np.min([fitted.mahalanobis(fresh - mean) for mean in means.values()], axis=0)


def logarithms(known: FitSamples, fresh: FitSamples) -> np.ndarray:
    """The logarithm of the distance in each layer, and of that to classes, the mean over copies, `[L+1,n]`."""
    layers = zip([*known.hidden, known.features], [*fresh.hidden, fresh.features], strict=True)
    classes = np.zeros(known.samples) if known.predicted is None else known.predicted
    every = [*((*copies, None) for copies in layers), (known.features, fresh.features, classes)]
    return np.log(
        [np.mean([distances(*pair, classes) for pair in zip(*copies, strict=True)], 0) for *copies, classes in every]
    )


def exactly(known: FitSamples, fresh: FitSamples, state: Mapping[str, torch.Tensor]) -> np.ndarray:
    """The logarithms, moved and scaled as the state says."""
    location, scale = (state[name][:, None].numpy() for name in ("location", "scale"))
    return (logarithms(known, fresh) - location) / scale


@pytest.mark.parametrize("shared", [0, 1, 2])
def test_equals_scikit_learn(shared: int) -> None:
    known, fresh = samples(COUNT, 0, 2, shared), samples(30, 1, 2, shared)
    # Location and scale are those of samples left out: here by a fit on the others, one after the other.
    places = np.arange(COUNT)
    held = np.concatenate(
        [logarithms(known.subset(np.delete(places, n)), known.subset(places[n : n + 1])) for n in places], -1
    )
    logs = logarithms(known, fresh)
    (*layers, classes), usual = ((some - held.mean(-1)[:, None]) / held.std(-1)[:, None] for some in (logs, held))
    weight, layers = 0.5 * (COUNT - 3) / COUNT, np.stack(layers)  # three means of COUNT samples
    score = layers.sum(0) / usual[:-1].sum(0).std() + weight * classes
    state = as_state(LAYERS.fit(known))
    found = score_samples(LAYERS, state, fresh)
    np.testing.assert_allclose(found.sum(0), score, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(found[:-1] * layers.std() / found[:-1].std(), layers, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(found, exactly(known, fresh, state), rtol=1e-9, atol=1e-9)
    assert state["hidden_whiten"].shape[0] == shared + 2 * (2 - shared)
    assert state["means"].shape == (2, 3, WIDTH)


def test_leaving_out_one_sample_is_a_fit_on_the_others() -> None:
    rows = samples(20, 2).features[0]
    share, mean = ledoit_wolf(rows)[1], np.var(rows, axis=0).mean()
    for place, row in enumerate(rows):
        others = np.delete(rows, place, 0)
        covariance = (1 - share) * np.cov(others.T, bias=True) + share * mean * np.eye(WIDTH)
        away = row - others.mean(0)
        expected = away @ np.linalg.solve(covariance, away)
        assert left_out_distances(rows)[place] == pytest.approx(expected, rel=1e-10)


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


def answered(checkpoint: Checkpoint, reference: Reference, seed: int, count: int = 40) -> Answers:
    """The answers of a network to random inputs of the reference's kinds, with the class prompts of a zero-shot one."""
    model, generator = from_checkpoint(checkpoint), torch.Generator().manual_seed(seed)
    inputs = dict(reference.inputs)
    if checkpoint.spec.prompted:
        model.class_embeddings = model.embed_texts(inputs.pop("input_ids"), inputs.pop("attention_mask"))
    for name, tensor in inputs.items():
        shape = (count, *tensor.shape[1:])
        if tensor.is_floating_point():
            inputs[name] = torch.randn(shape, generator=generator, dtype=tensor.dtype)
        elif name == "input_ids":
            inputs[name] = torch.randint(2, int(tensor.max()) + 1, shape, generator=generator)
        else:
            inputs[name] = tensor[:1].expand(shape)
    with torch.inference_mode():
        output = model(**inputs, every_layer=True)
    return Answers(
        task=find_task(checkpoint.spec.task),
        member_logits=output.member_logits.numpy(),
        features=output.features.numpy(),
        hidden=[layer.numpy() for layer in output.hidden],
    )


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(
    ("family", "task"),
    [("vit", None), ("bert", None), ("clip", None), ("vit", Numbers), ("vit", Labels), ("vit", "embeds")],
)
def test_networks_of_every_task_are_scored_as_scikit_learn_does(
    family: str, task: Any, members: int, tmp_path: Path
) -> None:
    reference = build_reference(family)
    checkpoint = read_checkpoint(reference.save(tmp_path / "one"))
    if task == "embeds":
        checkpoint = as_embedding(checkpoint, "image")
    elif task is not None:
        checkpoint = with_task(checkpoint, task)
    if members > 1:
        checkpoint = fuse(uneven_members(checkpoint))
    known, fresh = (answered(checkpoint, reference, seed) for seed in (0, 1))
    state = as_state(LAYERS.fit(known.to_score()))
    # The class of the mean probability; answers of other kinds are no classes.
    p = np.exp(known.member_logits) / np.exp(known.member_logits).sum(-1, keepdims=True)
    predicted = p.mean(0).argmax(-1) if task is None else None
    raw = FitSamples(known.member_logits, known.features, hidden=known.hidden, predicted=predicted)
    expected = exactly(raw, fresh.to_score(), state)
    np.testing.assert_allclose(score_samples(LAYERS, state, fresh.to_score()), expected, rtol=1e-8, atol=1e-8)
    assert state["means"].shape[1] == (1 if task else len(set(raw.predicted)))


def test_classes_of_a_sample_or_two_count_next_to_nothing() -> None:
    known, fresh = samples(COUNT, 0), samples(30, 1)
    for predicted in (np.arange(COUNT), np.arange(COUNT) % 58):
        parts = score_samples(LAYERS, as_state(LAYERS.fit(replace(known, predicted=predicted))), fresh)
        assert np.isfinite(parts).all() and np.ptp(parts[-1]) < 0.1 * np.ptp(parts[:-1].sum(0))
