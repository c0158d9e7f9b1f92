"""Noise: each value of each channel is disturbed by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.random import Generator

    from hydractl.data.corruptions.pixels import Pixels


def gaussian(x: Pixels, spread: float, draw: Generator) -> Pixels:
    """Light that a sensor adds by itself.

    Args:
        spread: its standard deviation.
    """
    return x + draw.normal(scale=spread, size=x.shape)


def shot(x: Pixels, photons: float, draw: Generator) -> Pixels:
    """Light that comes in single photons.

    Args:
        photons: how many at full light.
    """
    return draw.poisson(x * photons) / photons


def impulse(x: Pixels, share: float, draw: Generator) -> Pixels:
    """Values that are black or white, either as often.

    Args:
        share: how many of them.
    """
    import numpy as np

    hit, white = draw.random(x.shape) < share, draw.random(x.shape) < 0.5
    return np.where(hit, white.astype(np.float64), x)


def speckle(x: Pixels, spread: float, draw: Generator) -> Pixels:
    """Noise that grows with the light.

    Args:
        spread: its standard deviation, of the value.
    """
    return x + x * draw.normal(scale=spread, size=x.shape)
