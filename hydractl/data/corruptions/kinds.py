"""The kinds of corruption to choose from.

Definitions, severities and groups are those of ImageNet-C and CIFAR-10-C; frost alone differs, see its function. A new
kind is a function in the file of its group and a row here.

Source: Hendrycks & Dietterich 2019 (arXiv 1903.12261), and the code that made the benchmarks' files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from hydractl.data.corruptions import blur, digital, noise, weather

if TYPE_CHECKING:
    from numpy.random import Generator

    from hydractl.data.corruptions.pixels import Pixels

Group = Literal["noise", "blur", "weather", "digital"]
GROUPS: tuple[Group, ...] = get_args(Group)
SEVERITIES = (1, 2, 3, 4, 5)
#: Images with a side below this are small: theirs are the strengths of CIFAR-10-C.
SMALL = 64

Strengths = tuple[Any, Any, Any, Any, Any]


@dataclass(frozen=True)
class Corruption:
    """A way to make images worse.

    Attributes:
        large, small: its strength at severities 1 to 5, for images of 64 pixels and more (ImageNet-C) and for
            smaller ones (CIFAR-10-C).
        function: makes pixels worse by a strength; what it gives may lie beyond 0 and 1.
        extra: not among the fifteen that published means are over.
    """

    name: str
    help: str
    group: Group
    large: Strengths
    small: Strengths
    function: Callable[[Pixels, Any, Generator], Pixels]
    extra: bool = False

    def strength(self, severity: int, size: tuple[int, int]) -> Any:
        """Its strength for an image of some width and height."""
        return (self.small if min(size) < SMALL else self.large)[severity - 1]


CORRUPTIONS = (
    Corruption(
        "gaussian_noise",
        "a sensor's noise",
        "noise",
        (0.08, 0.12, 0.18, 0.26, 0.38),
        (0.04, 0.06, 0.08, 0.09, 0.10),
        noise.gaussian,
    ),
    Corruption(
        "shot_noise",
        "too few photons",
        "noise",
        (60, 25, 12, 5, 3),
        (500, 250, 100, 75, 50),
        noise.shot,
    ),
    Corruption(
        "impulse_noise",
        "values turned black or white",
        "noise",
        (0.03, 0.06, 0.09, 0.17, 0.27),
        (0.01, 0.02, 0.03, 0.05, 0.07),
        noise.impulse,
    ),
    Corruption(
        "defocus_blur",
        "a lens out of focus",
        "blur",
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        blur.defocus,
    ),
    Corruption(
        "glass_blur",
        "seen through frosted glass",
        "blur",
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        blur.glass,
    ),
    Corruption(
        "motion_blur",
        "a camera that moves",
        "blur",
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        blur.motion,
    ),
    Corruption(
        "zoom_blur",
        "a camera that comes nearer",
        "blur",
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        blur.zoom,
    ),
    Corruption(
        "snow",
        "falling snow",
        "weather",
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        weather.snow,
    ),
    Corruption(
        "frost",
        "frost on the lens, of a synthetic texture instead of the benchmarks' photographs",
        "weather",
        ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
        ((1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5)),
        weather.frost,
    ),
    Corruption(
        "fog",
        "fog in wisps",
        "weather",
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        weather.fog,
    ),
    Corruption(
        "brightness",
        "brighter",
        "weather",
        (0.1, 0.2, 0.3, 0.4, 0.5),
        (0.05, 0.1, 0.15, 0.2, 0.3),
        weather.brightness,
    ),
    Corruption(
        "contrast",
        "flat",
        "digital",
        (0.4, 0.3, 0.2, 0.1, 0.05),
        (0.75, 0.5, 0.4, 0.3, 0.15),
        digital.contrast,
    ),
    Corruption(
        "elastic_transform",
        "warped",
        "digital",
        # In units of 244 pixels, which should have been 224, as the benchmark's authors say.
        ((488, 170.8, 24.4), (488, 19.52, 48.8), (12.2, 2.44, 4.88), (17.08, 2.44, 4.88), (29.28, 2.44, 4.88)),
        ((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
        digital.elastic,
    ),
    Corruption(
        "pixelate",
        "coarse pixels",
        "digital",
        (0.6, 0.5, 0.4, 0.3, 0.25),
        (0.95, 0.9, 0.85, 0.75, 0.65),
        digital.pixelate,
    ),
    Corruption(
        "jpeg_compression",
        "strongly compressed",
        "digital",
        (25, 18, 15, 10, 7),
        (80, 65, 58, 50, 40),
        digital.jpeg,
    ),
    Corruption(
        "speckle_noise",
        "noise that grows with the light",
        "noise",
        (0.15, 0.2, 0.35, 0.45, 0.6),
        (0.06, 0.1, 0.12, 0.16, 0.2),
        noise.speckle,
        extra=True,
    ),
    Corruption(
        "gaussian_blur",
        "out of focus, softly",
        "blur",
        (1, 2, 3, 4, 6),
        (0.4, 0.6, 0.7, 0.8, 1),
        blur.gaussian,
        extra=True,
    ),
    Corruption(
        "saturate",
        "pale, then gaudy",
        "digital",
        ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        digital.saturate,
        extra=True,
    ),
)


def describe_kinds() -> str:
    """What there is to choose from, for help."""
    names = [kind.name for kind in CORRUPTIONS]
    return f"all, {', '.join(GROUPS)}, or {', '.join(names)} (frost with a synthetic texture)"
