"""Blur: what a lens, a pane or a moving camera does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.random import Generator

    from hydractl.data.corruptions.pixels import Pixels

#: How far from its middle the benchmarks lay out a disk, unless it is larger.
DISK_REACH = 8


def gaussian(x: Pixels, sigma: float, _: Generator) -> Pixels:
    """Every pixel spread over its surroundings.

    Args:
        sigma: in pixels.
    """
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(x, sigma, mode="nearest", axes=(0, 1))


def defocus(x: Pixels, strength: tuple[float, float], _: Generator) -> Pixels:
    """Every pixel a disk, as a lens out of focus shows it.

    Args:
        strength: radius of the disk, and sigma by which its edge is softened, in pixels.
    """
    import numpy as np
    from scipy.signal import convolve

    kernel = disk(*strength)
    reach = len(kernel) // 2
    padded = np.pad(x, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    return convolve(padded, kernel[..., None], mode="valid")


def disk(radius: float, sigma: float) -> Pixels:
    """A disk, its edge softened, `[width,width]`; it sums to 1, and to a little more where it reaches the border."""
    import numpy as np
    from scipy.ndimage import convolve1d

    small = radius <= DISK_REACH
    along = np.arange(-DISK_REACH, DISK_REACH + 1) if small else np.arange(-radius, radius + 1)
    inside = along**2 + along[:, None] ** 2 <= radius**2
    softened = inside / inside.sum()
    near = np.arange(-1, 2) if small else np.arange(-2, 3)
    edge = np.exp(-(near**2) / (2 * sigma**2))
    for axis in (0, 1):
        softened = convolve1d(softened, edge / edge.sum(), axis=axis, mode="mirror")
    return softened


def glass(x: Pixels, strength: tuple[float, int, int], draw: Generator) -> Pixels:
    """Blurred, pixels moved about, and blurred again, as through frosted glass.

    Args:
        strength: sigma of the blur, the farthest that a pixel moves, and how often all do.
    """
    import numpy as np

    sigma, farthest, times = strength
    height, width, channels = x.shape
    rows, columns = np.arange(height - farthest, farthest, -1), np.arange(width - farthest, farthest, -1)
    places = (rows[:, None] * width + columns).ravel()
    origin = list(range(height * width))
    for _ in range(times):
        moves = draw.integers(-farthest, farthest, size=(len(places), 2))
        # The benchmarks mean to exchange two pixels, but their assignment copies one over the other: so does this.
        # Pixels move one after the other, and a copy may be copied on.
        for place, source in zip(places.tolist(), (places + moves @ (1, width)).tolist(), strict=True):
            origin[place] = origin[source]
    levels = np.floor(gaussian(x, sigma, draw) * 255 + 1e-6) / 255
    return gaussian(levels.reshape(-1, channels)[origin].reshape(x.shape), sigma, draw)


def motion(x: Pixels, strength: tuple[int, float], draw: Generator) -> Pixels:
    """Smeared, as by a camera that moves, within 45 degrees of the horizontal.

    Args:
        strength: radius and sigma of `smeared`.
    """
    return smeared(x, *strength, degrees=draw.uniform(-45, 45))


def smeared(x: Pixels, radius: int, sigma: float, degrees: float) -> Pixels:
    """Each pixel the mean of those from it on in one direction, the nearest with the most weight.

    This is the motion blur of ImageMagick: half a bell curve, from its peak on, at whole pixels.

    Args:
        radius: half as many pixels as are averaged besides the first.
        sigma: of the bell curve, in pixels.
        degrees: the direction, from rightwards on downwards.
    """
    import numpy as np

    height, width = x.shape[:2]
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    angle = np.radians(degrees)
    right, down = (np.ceil(steps * share - 0.5).astype(int) for share in (np.cos(angle), np.sin(angle)))
    reach = 2 * radius
    padded = np.pad(x, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
    out = np.zeros_like(x)
    for weight, dx, dy in zip(weights / weights.sum(), reach + right, reach + down, strict=True):
        out += weight * padded[dy : dy + height, dx : dx + width]
    return out


def zoom(x: Pixels, strength: tuple[float, float], _: Generator) -> Pixels:
    """The mean of enlargements, as of a camera that comes nearer.

    Args:
        strength: enlargements from 1 to below the first number, in steps of the second.
    """
    import numpy as np

    factors = np.arange(1, *strength)
    return (x + sum(enlarged(x, factor) for factor in factors)) / (len(factors) + 1)


def enlarged(x: Pixels, factor: float) -> Pixels:
    """The middle of an image, enlarged to its size."""
    rows, columns = (_enlarging(size, factor) for size in x.shape[:2])
    return (rows @ x.transpose(2, 0, 1) @ columns.T).transpose(1, 2, 0)


def _enlarging(size: int, factor: float) -> Pixels:
    """What each pixel of the enlarged middle takes of each pixel, `[size,size]`: linear interpolation on one axis."""
    import numpy as np

    part = int(np.ceil(size / factor))
    large = round(part * factor)
    start, trimmed = (size - part) // 2, (large - size) // 2
    at = start + np.arange(trimmed, trimmed + size) * ((part - 1) / max(large - 1, 1))
    return (1 - abs(at[:, None] - np.arange(size))).clip(min=0)
