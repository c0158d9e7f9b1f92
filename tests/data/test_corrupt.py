from io import BytesIO

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import zoom as resampled

from hydractl.data import corrupt
from hydractl.data.corrupt import to_image, to_pixels


def pixels(height: int = 12, width: int = 9, channels: int = 3) -> NDArray[np.float64]:
    return default_rng(3).random((height, width, channels))


def grey(*rows: list[float]) -> NDArray[np.float64]:
    return np.array(rows)[..., None]


def test_pixels_there_and_back() -> None:
    every_level = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))
    assert to_image(to_pixels(every_level)).tobytes() == every_level.tobytes()
    colours = Image.fromarray(default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8))
    assert to_image(to_pixels(colours)).tobytes() == colours.tobytes()
    half_clear = Image.fromarray(np.array([[[0, 0, 0, 0], [9, 9, 9, 255]]], dtype=np.uint8))
    palette = Image.fromarray(np.array([[0, 1]], dtype=np.uint8), "P")
    palette.putpalette([0, 0, 0, 9, 9, 9])
    palette.info["transparency"] = 0
    for image in (half_clear, palette):
        assert to_image(to_pixels(image)).tobytes() == bytes([255] * 3 + [9] * 3)  # over white
    assert to_image(grey([-1.0, 0.999, 2.0])).tobytes() == bytes([0, 254, 255])


def test_noise_has_its_mean_and_variance() -> None:
    flat = np.full((300, 300, 1), 0.5)
    for worse, mean, spread in (
        (corrupt.gaussian_noise(flat, 0.1, default_rng(0)), 0.5, 0.1),
        (corrupt.shot_noise(flat, 20, default_rng(0)), 0.5, np.sqrt(10) / 20),  # Poisson of mean 10, of 20
    ):
        assert worse.mean() == pytest.approx(mean, abs=3 * spread / 300)
        assert worse.std() == pytest.approx(spread, rel=0.02)
    hit = corrupt.impulse_noise(flat, 0.2, default_rng(0))
    assert np.unique(hit).tolist() == [0, 0.5, 1]
    assert [(hit == value).mean() for value in (0, 1)] == pytest.approx([0.1, 0.1], abs=0.01)


def test_a_disk_out_of_focus() -> None:
    # Radius 1 is a cross of five; an edge of sigma .1 is as good as none.
    cross = np.zeros((17, 17))
    cross[8, 7:10] = cross[7:10, 8] = 0.2
    np.testing.assert_allclose(corrupt.disk(1, 0.1), cross, atol=1e-15)
    assert corrupt.disk(10, 0.5).shape == (21, 21)
    x = pixels()
    worse = corrupt.defocus_blur(x, (1, 0.1), default_rng(0))
    inner = (x[1:-1, 1:-1] + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 5
    np.testing.assert_allclose(worse[1:-1, 1:-1], inner, atol=1e-12)
    corner = (x[0, 0] + 2 * x[0, 1] + 2 * x[1, 0]) / 5  # mirrored about the first pixel
    np.testing.assert_allclose(worse[0, 0], corner, atol=1e-12)


@pytest.mark.parametrize("factor", [1.0, 1.07, 1.25, 3.0, 4.5])
@pytest.mark.parametrize("size", [32, 33])
def test_enlarged_as_scipy_resamples(factor: float, size: int) -> None:
    x = pixels(size, size)
    part = int(np.ceil(size / factor))
    start = (size - part) // 2
    large = resampled(x[start : start + part, start : start + part], (factor, factor, 1), order=1)
    trim = (len(large) - size) // 2
    np.testing.assert_allclose(corrupt.enlarged(x, factor), large[trim : trim + size, trim : trim + size], atol=1e-12)


class Fixed(Generator):
    """Draws that are always the same, so that what is made of them can be worked out by hand."""

    def __init__(self, value: float) -> None:
        super().__init__(default_rng(0).bit_generator)
        self.value = value

    def uniform(self, low=0.0, high=1.0, size=None):  # type: ignore[no-untyped-def]
        return np.full(size, self.value) if size is not None else self.value

    def normal(self, loc=0.0, scale=1.0, size=None):  # type: ignore[no-untyped-def]
        return np.full(size, loc + self.value * scale)

    def integers(self, low, high=None, size=None):  # type: ignore[no-untyped-def]
        return np.full(size, int(self.value))


def test_glass_copies_pixels_from_up_and_left() -> None:
    x = np.arange(16).reshape(4, 4, 1) / 255  # 0 to 15 of 255 levels
    moved = corrupt.glass_blur(x, (0, 1, 1), Fixed(-1)) * 255
    expected = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 5, 6], [12, 13, 9, 10]]
    np.testing.assert_allclose(moved[..., 0], expected, atol=1e-9)


def test_motion_is_half_a_bell_curve() -> None:
    weights = np.exp([0, -1 / 2, -4 / 2])
    _, second, third = weights / weights.sum()
    smeared = corrupt.smeared(grey([0.0, 0, 0, 1]), 1, 1.0, degrees=0)
    np.testing.assert_allclose(smeared[0, :, 0], [0, third, second + third, 1], atol=1e-12)
    smeared = corrupt.smeared(grey([1.0], [0], [0], [0]), 1, 1.0, degrees=-90)  # upwards
    np.testing.assert_allclose(smeared[:, 0, 0], [1, second + third, third, 0], atol=1e-12)


def test_a_landscape_of_two_by_two_by_hand() -> None:
    # The middle is 0 + 1, its neighbours are (1 + 1 + 0 + 0) / 4 + 1; then all are scaled to 0 to 1.
    np.testing.assert_allclose(corrupt.plasma((2, 2), 2.0, Fixed(1.0)), [[0, 1], [1, 2 / 3]], atol=1e-12)


def test_contrast_by_hand() -> None:
    x = grey([0.0, 0.4], [0.8, 0.4])  # its mean is .4
    np.testing.assert_allclose(corrupt.contrast(x, 0.5, default_rng(0)), grey([0.2, 0.4], [0.6, 0.4]), atol=1e-12)


def test_snow_by_hand() -> None:
    x = grey([0.2, 0.4], [0.6, 0.8])
    # Each pixel of noise is .1 + 1 * .5 = .6, a flake; the paler image is half grey * 1.5 + .5.
    strength = (0.1, 0.5, 1.0, 0.5, 3, 1.0, 0.75)
    paler = 0.75 * x + 0.25 * (1.5 * x + 0.5)
    np.testing.assert_allclose(corrupt.snow(x, strength, Fixed(1.0)), paler + 0.6 + 0.6, atol=1e-12)
    np.testing.assert_allclose(corrupt.snow(x, (*strength[:3], 0.7, *strength[4:]), Fixed(1.0)), paler, atol=1e-12)
    red = np.array([[[1.0, 0.0, 0.0]]])
    paler = 0.75 * red + 0.25 * np.maximum(red, 1.5 * 0.299 + 0.5)
    np.testing.assert_allclose(corrupt.snow(red, (*strength[:3], 0.7, *strength[4:]), Fixed(1.0)), paler, atol=1e-12)


def test_frost_adds_its_texture() -> None:
    x = pixels(8, 6)
    texture = corrupt.frost_texture((16, 12), default_rng(2))
    assert 0 <= texture.min() < texture.max() <= 1
    halved = (texture[::2, ::2] + texture[1::2, ::2] + texture[::2, 1::2] + texture[1::2, 1::2]) / 4
    np.testing.assert_allclose(corrupt.frost(x, (0.7, 0.6, 2), default_rng(2)), 0.7 * x + 0.6 * halved, atol=1e-12)
    # Ice is bluish white, as on the photographs that this stands for.
    red, green, blue = texture.mean((0, 1))
    assert 0.25 < red < green < blue


def test_brightness_in_hsv() -> None:
    colours = np.array([[[0.8, 0.4, 0.4], [0.5, 0.5, 0.5], [0.0, 0.0, 0.0], [0.2, 0.6, 0.3]]])
    brighter = corrupt.brightness(colours, 0.3, default_rng(0))
    expected = [[1.0, 0.5, 0.5], [0.8, 0.8, 0.8], [0.3, 0.3, 0.3], [0.3, 0.9, 0.45]]
    np.testing.assert_allclose(brighter[0], expected, atol=1e-12)


def test_a_warp_that_moves_all_points_alike_is_a_shift() -> None:
    x = pixels(9, 9)
    shifted = corrupt.elastic_transform(x, (0, 0, 2.0), Fixed(2.0))
    np.testing.assert_allclose(shifted[2:, 2:], x[:-2, :-2], atol=1e-9)
    bent = corrupt.elastic_transform(x, (0.5, 3.0, 0.0), Fixed(0.0))
    np.testing.assert_allclose(bent, x, atol=1e-9)


def test_pixels_and_jpeg_are_what_pillow_makes() -> None:
    x = to_pixels(to_image(pixels(16, 16)))
    coarse = corrupt.pixelate(x, 0.5, default_rng(0))
    blocks = x.reshape(8, 2, 8, 2, 3).mean((1, 3)).repeat(2, 0).repeat(2, 1)
    np.testing.assert_allclose(coarse, blocks, atol=1 / 255)
    encoded = BytesIO()
    to_image(x).save(encoded, "JPEG", quality=15)
    assert to_image(corrupt.jpeg_compression(x, 15, default_rng(0))).tobytes() == Image.open(encoded).tobytes()
