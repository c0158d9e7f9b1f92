"""What is done to an image after it was taken: encoded, made coarse, warped, its colours changed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.random import Generator

    from hydractl.data.corruptions.pixels import Pixels


def contrast(x: Pixels, factor: float, _: Generator) -> Pixels:
    """Each channel nearer to its mean.

    Args:
        factor: of the distance to the mean.
    """
    means = x.mean(axis=(0, 1), keepdims=True)
    return (x - means) * factor + means


def elastic(x: Pixels, strength: tuple[float, float, float], draw: Generator) -> Pixels:
    """Three points of the image moved, and the image bent.

    Args:
        strength: by how much it is bent, sigma over which bends are alike, and the farthest that a point moves along
            each axis; in pixels.
    """
    import numpy as np
    from scipy.ndimage import map_coordinates

    bend, sigma, farthest = strength
    height, width = x.shape[:2]
    moved = _moved(x, farthest, draw)
    noise = draw.uniform(-1, 1, size=(2, height, width))
    shift = _smoothing(height, sigma) @ noise @ _smoothing(width, sigma).T
    at = np.indices((height, width)) + bend * shift
    return np.stack([map_coordinates(moved[..., c], at, order=1, mode="reflect") for c in range(x.shape[-1])], -1)


@lru_cache(maxsize=16)
def _smoothing(size: int, sigma: float) -> Pixels:
    """The matrix `[size,size]` of a Gaussian filter along one axis: the widest has many more taps than pixels."""
    import numpy as np
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(np.eye(size), sigma, mode="reflect", truncate=3, axes=(0,))


def _moved(x: Pixels, farthest: float, draw: Generator) -> Pixels:
    """The affine image of `x` that moves three points about its middle at random."""
    import numpy as np
    from scipy.ndimage import affine_transform

    height, width = x.shape[:2]
    middle, away = np.array([height // 2, width // 2]), min(height, width) // 3
    before = middle + away * np.array([(1, 1), (-1, 1), (-1, -1)])
    after = before + draw.uniform(-farthest, farthest, size=(3, 2))
    # Where a pixel of the result comes from: (row, column, 1) times this.
    back = np.linalg.solve(np.column_stack([after, np.ones(3)]), before)
    channels = [affine_transform(x[..., c], back[:2].T, back[2], order=1, mode="mirror") for c in range(x.shape[-1])]
    return np.stack(channels, -1)


def pixelate(x: Pixels, share: float, _: Generator) -> Pixels:
    """Made smaller, and as large as before.

    Args:
        share: of the width that is kept.
    """
    from PIL import Image

    from hydractl.data.corruptions.pixels import to_image, to_pixels

    image, box = to_image(x), Image.Resampling.BOX
    small = image.resize((max(1, int(image.width * share)), max(1, int(image.height * share))), box)
    return to_pixels(small.resize(image.size, box))


def jpeg(x: Pixels, quality: int, _: Generator) -> Pixels:
    """Encoded as JPEG.

    Args:
        quality: as encoders count it, to 95.
    """
    from io import BytesIO

    from PIL import Image

    from hydractl.data.corruptions.pixels import to_image, to_pixels

    encoded = BytesIO()
    to_image(x).save(encoded, "JPEG", quality=quality)
    return to_pixels(Image.open(encoded))


def saturate(x: Pixels, strength: tuple[float, float], _: Generator) -> Pixels:
    """S of HSV changed; grey images of one channel have none.

    Args:
        strength: factor of S, and what is added.
    """
    import numpy as np

    if x.shape[-1] == 1:
        return x
    factor, offset = strength
    value, chroma = x.max(-1, keepdims=True), np.ptp(x, axis=-1, keepdims=True)
    saturation = chroma / np.where(value > 0, value, 1)
    # How far each channel is from V, of the farthest; a grey pixel has hue 0, which is red.
    distance = np.where(chroma > 0, (value - x) / np.where(chroma > 0, chroma, 1), (0, 1, 1))
    return value * (1 - distance * (saturation * factor + offset).clip(0, 1))
