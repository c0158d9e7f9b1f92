"""Images as numbers, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

#: `[height,width,channels]` float64, 0..1; of one channel (grey) or three.
Pixels = NDArray[np.float64]


def to_pixels(image: Image.Image) -> Pixels:
    """The pixels of an image; what is neither grey nor RGB becomes RGB."""
    image = image if image.mode in ("L", "RGB") else image.convert("RGB")
    return np.atleast_3d(np.asarray(image, dtype=np.float64) / 255)


def to_image(x: Pixels) -> Image.Image:
    """The image of some pixels, which may lie beyond 0 and 1; levels are rounded down, as the benchmarks' are."""
    # A level that arithmetic left just below a whole number is that number, on every machine.
    levels = (x.clip(0, 1) * 255 + 1e-6).astype(np.uint8)
    return Image.fromarray(levels[..., 0] if levels.shape[-1] == 1 else levels)
