"""Corruptions: worse with severity, the same for a seed, refused where they make no sense."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

from hydractl.data.corrupt import STRENGTHS, corrupted
from hydractl.data.samples import Samples
from hydractl.errors import OptionError


def photo(mode: str = "RGB", size: int = 32) -> Image.Image:
    generator = np.random.default_rng(0)
    small = Image.fromarray(generator.integers(60, 196, (6, 6, 3), dtype=np.uint8))
    return small.resize((size, size), Image.Resampling.BICUBIC).convert(mode)


def samples(*images: Image.Image) -> Samples:
    return Samples("photos", "image", list(images), labels=np.zeros(len(images), dtype=np.int64))


def distance(one: Image.Image, other: Image.Image) -> float:
    return float(np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)).mean())


# Saturation falls, then rises; of a small image a lower quality is not always farther off.
@pytest.mark.parametrize("kind", sorted(STRENGTHS.keys() - {"saturate", "jpeg_compression"}))
@pytest.mark.parametrize("size", [32, 64])
def test_it_gets_worse_with_severity(kind: str, size: int) -> None:
    image = photo(size=size)
    found = [distance(image, corrupted(samples(image), kind, severity).inputs[0]) for severity in range(1, 6)]
    assert found == sorted(found)
    assert 0 < found[0] < found[-1]


def test_values_by_hand() -> None:
    grey = Image.fromarray(np.array([[0, 100], [200, 100]], dtype=np.uint8))
    contrast = np.asarray(corrupted(samples(grey), "contrast", 2).inputs[0])
    assert contrast.tolist() == [[50, 100], [150, 100]]  # half the distance to the mean, which is 100
    bright = np.asarray(corrupted(samples(grey), "brightness", 4).inputs[0])
    assert bright.tolist() == [[51, 151], [251, 151]]  # a fifth of 255 more
    red = Image.new("RGB", (70, 70), (200, 100, 100))
    assert corrupted(samples(red), "saturate", 3).inputs[0].getpixel((0, 0)) == (200, 1, 1)  # S .5 times 2, rounded
    blurred = corrupted(samples(photo()), "gaussian_blur", 5).inputs[0]
    expected = gaussian_filter(np.asarray(photo()) / 255, (1, 1, 0), mode="nearest")
    assert np.array_equal(np.asarray(blurred), (255 * expected).astype(np.uint8))
    encoded = BytesIO()
    photo(size=64).save(encoded, "JPEG", quality=15)
    worse = corrupted(samples(photo(size=64)), "jpeg_compression", 3).inputs[0]
    assert np.array_equal(np.asarray(worse), np.asarray(Image.open(encoded)))
    black = np.asarray(corrupted(samples(Image.new("L", (200, 200))), "impulse_noise", 5).inputs[0])
    assert np.unique(black).tolist() == [0, 255]
    assert (black == 255).mean() == pytest.approx(0.27 / 2, abs=0.01)


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
    noisy = np.asarray(corrupted(samples(flat), "gaussian_noise", 1).inputs[0], dtype=float)
    assert noisy.std() == pytest.approx(0.08 * 255, rel=0.03)


def test_what_is_refused() -> None:
    with pytest.raises(OptionError, match="no such corruption: choose from gaussian_noise"):
        corrupted(samples(photo()), "snow", 1)
    with pytest.raises(OptionError, match="severities are 1 to 5"):
        corrupted(samples(photo()), "pixelate", 6)
    with pytest.raises(OptionError, match="--shift-data"):
        corrupted(Samples("t", "text", ["a"]), "pixelate", 1)
