from dataclasses import replace

import numpy as np
import pytest
import torch

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.training.batches import (
    ShuffledSamples,
    _divide,
    build_augmentation,
    length_grouping,
    training_preprocessor,
)
from hydractl.training.recipe import Recipe
from hydractl.training.request import Seeds
from hydractl.training.trainset import SplitOrder, epoch_order, sample_at
from tests.training.conftest import image_samples, text_samples

SEEDS = Seeds(7)
AUGMENTED = Recipe(crop_scale=(0.3, 1.0), flip=True, randaugment=(2, 12))


def shuffled(vit: Checkpoint, division: SplitOrder, seeds: Seeds = SEEDS) -> ShuffledSamples:
    preprocessor = preprocessor_from_json(vit.preprocessing, vit.spec, "vit")
    augmentation = build_augmentation(AUGMENTED, vit.spec)
    return ShuffledSamples(image_samples(10), preprocessor, division, seeds, augmentation=augmentation)


def test_each_epoch_is_every_sample_once_in_an_order_of_its_own() -> None:
    epochs = [[sample_at(3, 10 * epoch + i, 10) for i in range(10)] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert epochs != [[sample_at(4, 10 * epoch + i, 10) for i in range(10)] for epoch in range(3)]


def test_a_step_is_the_same_samples_however_they_are_dealt_out() -> None:
    for world_size, passes in ((1, 1), (2, 1), (1, 3), (3, 2)):
        division = SplitOrder(16, world_size, passes)
        places = [division.places_of(5 * passes + f, r) for f in range(passes) for r in range(world_size)]
        assert [place for part in places for place in part] == list(range(80, 96))


def test_no_pass_of_a_step_is_empty() -> None:
    for batch, batch_size, world_size in ((5, 1, 2), (7, 2, 3), (3, None, 2)):
        division = _divide(batch, Recipe(), batch_size, world_size)
        assert all(division.places_of(f, r) for f in range(division.passes) for r in range(world_size))


@pytest.mark.apart
@pytest.mark.usefixtures("beside_ranks")
def test_batches_are_the_same_whoever_makes_them_and_wherever_a_run_starts(vit: Checkpoint) -> None:
    def pixels(batches: ShuffledSamples, start: int = 0) -> torch.Tensor:
        return torch.cat([batch.inputs["pixel_values"] for batch in batches.from_step(start, 6)])

    whole = pixels(shuffled(vit, SplitOrder(4, 1, 1)))
    assert torch.equal(pixels(replace(shuffled(vit, SplitOrder(4, 1, 2)), workers=2)), whole)
    assert torch.equal(pixels(shuffled(vit, SplitOrder(4, 1, 1)), start=4), whole[16:])


def test_texts_of_as_many_tokens_share_a_step_and_epochs_stay_shuffled(bert: Checkpoint) -> None:
    samples, preprocessor = text_samples(1003), training_preprocessor(bert, Recipe())
    lengths = np.array([len(text.split()) for text in samples.inputs])  # every word is one token
    grouping = length_grouping(samples, preprocessor, 10, 8)
    first, second = (epoch_order(3, epoch, 1003, grouping) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(1003)) and not np.array_equal(first, second)

    def padding(order: np.ndarray) -> int:
        steps = [lengths[order[start : start + 8]] for start in range(0, 1000, 8)]
        return sum(int((step.max() - step).sum()) for step in steps)

    plain = epoch_order(3, 0, 1003)
    assert padding(first) < 0.25 * padding(plain)
    # Samples leave their window by no step, so far as data are sorted by class that is mixed as before.
    for start in range(0, 1003, 80):
        assert set(first[start : start + 80]) == set(plain[start : start + 80])
    # Lengths neither grow nor shrink in the course of a window.
    means = [[lengths[first[at : at + 8]].mean() for at in range(start, start + 80, 8)] for start in range(0, 960, 80)]
    assert abs(np.corrcoef(np.tile(range(10), 12), np.ravel(means))[0, 1]) < 0.3
    assert sample_at(3, 1003 + 5, 1003, grouping) == second[5]


def test_order_and_noise_have_seeds_of_their_own(vit: Checkpoint) -> None:
    def first_steps(seeds: Seeds) -> tuple[list[int], torch.Tensor]:
        made = next(shuffled(vit, SplitOrder(10, 1, 1), seeds=seeds).from_step(0, 1))
        return made.labels.tolist(), made.inputs["pixel_values"]

    labels, images = first_steps(SEEDS)
    assert (Seeds(7).order, Seeds(7).noise, Seeds(7, 0, 0).order, Seeds(7, 0, 0).noise) == (7, 7, 0, 0)
    same, alike = first_steps(Seeds(1, 7, 7))
    assert same == labels and torch.equal(alike, images)
    same, other = first_steps(Seeds(7, noise_seed=8))
    assert same == labels and not torch.equal(other, images)
    assert first_steps(Seeds(7, order_seed=8))[0] != labels
