"""Corruptions: worse with severity, the same for a seed, refused where they make no sense."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from hydractl.data.corrupt import STRENGTHS, corrupted
from hydractl.data.sources import Samples
from hydractl.errors import OptionError


def photo(mode: str = "RGB") -> Image.Image:
    generator = np.random.default_rng(0)
    small = Image.fromarray(generator.integers(60, 196, (6, 6, 3), dtype=np.uint8))
    return small.resize((32, 32), Image.Resampling.BICUBIC).convert(mode)


def samples(*images: Image.Image) -> Samples:
    return Samples("photos", "image", list(images), labels=np.zeros(len(images), dtype=np.int64))


def distance(one: Image.Image, other: Image.Image) -> float:
    return float(np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)).mean())


@pytest.mark.parametrize("kind", STRENGTHS)
def test_it_gets_worse_with_severity(kind: str) -> None:
    image = photo()
    found = [distance(image, corrupted(samples(image), kind, severity).inputs[0]) for severity in range(1, 6)]
    assert found == sorted(found)
    assert 0 < found[0] < found[-1]


@pytest.mark.parametrize("kind", STRENGTHS)
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_size_labels_and_slices_stay(kind: str, mode: str) -> None:
    worse = corrupted(samples(photo(mode), photo(mode)), kind, 2)
    assert len(worse) == 2
    assert worse.labels is not None
    assert worse.inputs[0].size == (32, 32)
    for one, other in zip(worse.inputs[:2], (worse.inputs[0], worse.inputs[1]), strict=True):
        assert one.tobytes() == other.tobytes()


def test_noise_is_of_the_seed_and_the_sample() -> None:
    worse = corrupted(samples(photo(), photo()), "gaussian_noise", 3)
    again, other = (corrupted(samples(photo(), photo()), "gaussian_noise", 3, seed) for seed in (0, 1))
    assert worse.inputs[1].tobytes() == again.inputs[1].tobytes()
    assert worse.inputs[0].tobytes() != worse.inputs[1].tobytes()
    assert worse.inputs[0].tobytes() != other.inputs[0].tobytes()
    flat = Image.new("L", (200, 200), 128)
    noisy = np.asarray(corrupted(samples(flat), "gaussian_noise", 5).inputs[0], dtype=float)
    assert noisy.std() == pytest.approx(0.10 * 255, rel=0.03)


def test_what_is_refused() -> None:
    with pytest.raises(OptionError, match="no such corruption: choose from gaussian_noise"):
        corrupted(samples(photo()), "snow", 1)
    with pytest.raises(OptionError, match="severities are 1 to 5"):
        corrupted(samples(photo()), "jpeg", 6)
    with pytest.raises(OptionError, match="--shift-data"):
        corrupted(Samples("t", "text", ["a"]), "jpeg", 1)
