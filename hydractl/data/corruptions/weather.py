"""Weather: what snow, frost, fog and glaring light do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydractl.data.corruptions.blur import enlarged, smeared

if TYPE_CHECKING:
    from numpy.random import Generator

    from hydractl.data.corruptions.pixels import Pixels

#: Red, green and blue in the grey of an image (ITU-R BT.601).
LUMA = (0.299, 0.587, 0.114)
#: Glass without ice, and ice, about as in the photographs that the benchmarks take their frost from.
GLASS, ICE = (0.25, 0.35, 0.42), (0.92, 0.95, 0.98)


def snow(x: Pixels, strength: tuple[float, float, float, float, int, float, float], draw: Generator) -> Pixels:
    """Flakes that fall, before an image that they have made paler.

    Args:
        strength: of the flakes: mean and standard deviation of the noise that they are made of, its enlargement, and
            the least of it that is a flake; radius and sigma by which they are smeared; and the share of the image
            that does not pale.
    """
    import numpy as np

    mean, spread, factor, least, radius, sigma, clear = strength
    noise = enlarged(draw.normal(mean, spread, size=(*x.shape[:2], 1)), factor)
    flakes = np.where(noise < least, 0, noise).clip(0, 1)
    falling = smeared(flakes, radius, sigma, draw.uniform(-135, -45))
    grey = x if x.shape[-1] == 1 else (x @ LUMA)[..., None]
    paler = np.maximum(x, grey * 1.5 + 0.5)
    return clear * x + (1 - clear) * paler + falling + np.rot90(falling, k=2)


def frost(x: Pixels, strength: tuple[float, float, int], draw: Generator) -> Pixels:
    """The image behind frost; its texture is synthetic, where the benchmarks lay photographs over the image.

    Args:
        strength: factors of the image and of the frost, and how many times the frost is reduced in size.
    """
    import numpy as np

    clear, share, times = strength
    height, width, channels = x.shape
    texture = frost_texture((times * height, times * width), draw)
    texture = texture.reshape(height, times, width, times, 3).mean((1, 3))
    return clear * x + share * (texture if channels == 3 else np.asarray(texture @ LUMA)[..., None])


def frost_texture(size: tuple[int, int], draw: Generator) -> Pixels:
    """Ice on glass, `[*size,3]`, 0..1: needles in six directions, more of them where a plasma is thick.

    Brightness, contrast and colour differ from draw to draw about as much as between the benchmarks' photographs.
    """
    import numpy as np
    from scipy.ndimage import gaussian_filter

    needles = np.zeros((*size, 1))
    for degrees in draw.uniform(0, 360, 6):
        seeds = (draw.random((*size, 1)) < 0.01) * draw.random((*size, 1))
        needles += smeared(seeds, radius=10, sigma=8, degrees=degrees)
    needles = gaussian_filter(needles, 0.7, axes=(0, 1))
    thickness = plasma(size, 1.75, draw)[..., None]
    crystals = needles / max(needles.std(), 1e-9) * (0.5 + thickness)
    cover = draw.uniform(0.2, 0.8) + 0.12 * (crystals - crystals.mean()) + 0.6 * (thickness - thickness.mean())
    return GLASS + cover.clip(0, 1) * (np.array(ICE) - GLASS)


def fog(x: Pixels, strength: tuple[float, float], draw: Generator) -> Pixels:
    """The image in fog; its brightest stays as bright.

    Args:
        strength: thickness of the fog, and by what its wisps decay with their size.
    """
    thickness, decay = strength
    brightest = x.max()
    return (x + thickness * plasma(x.shape[:2], decay, draw)[..., None]) * brightest / (brightest + thickness)


def plasma(size: tuple[int, ...], decay: float, draw: Generator) -> Pixels:
    """A random landscape of heights from 0 to 1, `[*size]`: the midpoint displacement of diamonds and squares.

    Args:
        decay: the higher, the smoother: displacements fall by its square each time that distances are halved.
    """
    import numpy as np

    width = 1 << (max(*size, 2) - 1).bit_length()
    heights = np.zeros((width, width))
    step, height = width, 1.0

    def displaced(total: Pixels) -> Pixels:
        return total / 4 + height * draw.uniform(-1, 1, total.shape)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        columns = corners + np.roll(corners, -1, axis=0)
        middles = displaced(columns + np.roll(columns, -1, axis=1))
        heights[half::step, half::step] = middles
        above_below = middles + np.roll(middles, 1, axis=0)
        heights[::step, half::step] = displaced(above_below + corners + np.roll(corners, -1, axis=1))
        beside = middles + np.roll(middles, 1, axis=1)
        heights[half::step, ::step] = displaced(beside + columns)
        step, height = half, height / decay**2
    heights -= heights.min()
    return (heights / heights.max())[: size[0], : size[1]]


def brightness(x: Pixels, more: float, _: Generator) -> Pixels:
    """V of HSV raised.

    Args:
        more: by how much.
    """
    import numpy as np

    value = x.max(-1, keepdims=True)
    brighter = (value + more).clip(max=1)
    return np.where(value > 0, x * (brighter / np.where(value > 0, value, 1)), brighter)
