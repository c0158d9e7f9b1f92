"""The kinds of corruption that make images worse by a known amount.

Definitions, severities and groups are those of ImageNet-C and CIFAR-10-C; only frost differs, see its function. A new
kind is a row here and a function of its name in `hydractl.data.corrupt`. Images are corrupted when they are read,
before the model resizes them. The seed and the image's content determine all random draws, so a sample is the same in
any order or part of the data. To compare with publications, name the benchmarks' own files as shifted data,
because the noise here is drawn again.

Source: Hendrycks & Dietterich 2019 (arXiv 1903.12261), and the code that made the benchmarks' files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hydractl.errors import OptionError

if TYPE_CHECKING:
    from numpy.random import Generator
    from PIL import Image

    from hydractl.data.corrupt import Pixels
    from hydractl.data.samples import Samples

GROUPS = ("noise", "blur", "weather", "digital")
SEVERITIES = (1, 2, 3, 4, 5)
#: Images with a side below this are small: they take the strengths of CIFAR-10-C.
SMALL = 64
FORM = re.compile(r"(?P<kinds>[^:]+)(?::(?P<first>[1-5])(?:-(?P<last>[1-5]))?)?")

Strengths = tuple[Any, Any, Any, Any, Any]


@dataclass(frozen=True)
class Corruption:
    """A way to make images worse."""

    name: str
    group: str  # one of GROUPS
    help: str
    # large, small: its strength at severities 1 to 5, for images of 64 pixels and more (ImageNet-C) and for smaller
    # ones (CIFAR-10-C)
    large: Strengths
    small: Strengths

    def strength(self, severity: int, size: tuple[int, int]) -> Any:
        """Returns its strength for an image of some width and height."""
        return (self.small if min(size) < SMALL else self.large)[severity - 1]

    @property
    def function(self) -> Callable[[Pixels, Any, Generator], Pixels]:
        """The function that makes pixels worse by a strength; its result may lie outside 0 to 1."""
        return getattr(import_module("hydractl.data.corrupt"), self.name)


# fmt: off
CORRUPTIONS = (
    Corruption("gaussian_noise", "noise", "a sensor's noise",
               large=(0.08, 0.12, 0.18, 0.26, 0.38), small=(0.04, 0.06, 0.08, 0.09, 0.1)),
    Corruption("shot_noise", "noise", "too few photons",
               large=(60, 25, 12, 5, 3), small=(500, 250, 100, 75, 50)),
    Corruption("impulse_noise", "noise", "values turned black or white",
               large=(0.03, 0.06, 0.09, 0.17, 0.27), small=(0.01, 0.02, 0.03, 0.05, 0.07)),
    Corruption("defocus_blur", "blur", "a lens out of focus",
               large=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
               small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    Corruption("glass_blur", "blur", "seen through frosted glass",
               large=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
               small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))),
    Corruption("motion_blur", "blur", "a camera that moves",
               large=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
               small=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    Corruption("zoom_blur", "blur", "a camera that comes nearer",
               large=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
               small=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01))),
    Corruption("snow", "weather", "falling snow",
               large=((0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
                      (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55)),
               small=((0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
                      (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9), (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
                      (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8))),
    Corruption("frost", "weather", "frost on the lens, of a synthetic texture instead of the benchmarks' photographs",
               large=((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
               small=((1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5))),
    Corruption("fog", "weather", "fog in wisps",
               large=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
               small=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    Corruption("brightness", "weather", "brighter",
               large=(0.1, 0.2, 0.3, 0.4, 0.5), small=(0.05, 0.1, 0.15, 0.2, 0.3)),
    Corruption("contrast", "digital", "flat",
               large=(0.4, 0.3, 0.2, 0.1, 0.05), small=(0.75, 0.5, 0.4, 0.3, 0.15)),
    # Its strengths are in units of 244 pixels, which should have been 224, as the benchmark's authors say.
    Corruption("elastic_transform", "digital", "warped",
               large=((488, 170.8, 24.4), (488, 19.52, 48.8), (12.2, 2.44, 4.88), (17.08, 2.44, 4.88),
                      (29.28, 2.44, 4.88)),
               small=((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96))),
    Corruption("pixelate", "digital", "coarse pixels",
               large=(0.6, 0.5, 0.4, 0.3, 0.25), small=(0.95, 0.9, 0.85, 0.75, 0.65)),
    Corruption("jpeg_compression", "digital", "strongly compressed",
               large=(25, 18, 15, 10, 7), small=(80, 65, 58, 50, 40)),
)
# fmt: on


def describe_kinds() -> str:
    """Returns the choices, for help."""
    names = [kind.name for kind in CORRUPTIONS]
    return f"all, {', '.join(GROUPS)}, or {', '.join(names)} (frost with a synthetic texture)"


def parse_corruptions(text: str) -> list[tuple[Corruption, int]]:
    """Returns the corruptions that a text names, each with a severity.

    Args:
        text: kinds, groups of kinds or `all`, separated by commas, then severities, by default all five, as in
            `gaussian_noise,weather:1-3`.

    Raises:
        OptionError: an unknown kind, or severities outside 1 to 5.
    """
    if (match := FORM.fullmatch(text)) is None:
        raise OptionError(
            f"`corrupt` {text}: expected kinds, then severities from 1 to 5, as in gaussian_noise,contrast:1-5"
        )
    kinds = dict.fromkeys(kind for name in match["kinds"].split(",") for kind in _named(name.strip()))
    first, last = (int(match["first"]), int(match["last"] or match["first"])) if match["first"] else (1, 5)
    if first > last:
        raise OptionError(f"`corrupt` {text}: severities must ascend: write {last}-{first}")
    return [(kind, severity) for kind in kinds for severity in SEVERITIES[first - 1 : last]]


def _named(name: str) -> list[Corruption]:
    kinds = [kind for kind in CORRUPTIONS if kind.name == name or name in ("all", kind.group)]
    if not kinds:
        names = [kind.name for kind in CORRUPTIONS]
        raise OptionError(f"`corrupt` {name}: is not a corruption: choose from {', '.join(['all', *GROUPS, *names])}")
    return kinds


def corrupted(images: Samples, kind: Corruption, severity: int, seed: int = 0) -> Samples:
    """Returns the samples with their images made worse when they are read; the same image for the same seed.

    Args:
        severity: 1 to 5; 5 is the worst.

    Raises:
        OptionError: the samples are texts.
    """
    from hydractl.data.images import Lazy

    if images.modality != "image":
        raise OptionError(f"`corrupt` is for images, but {images.name} holds texts: give shifted texts as `shift_data`")
    worse = partial(_worse, images.inputs, kind=kind, severity=severity, seed=seed)
    return replace(images, inputs=Lazy(range(len(images)), worse), hashes=None)


def _worse(images: Sequence[Image.Image], place: int, kind: Corruption, severity: int, seed: int) -> Image.Image:
    import numpy as np

    from hydractl.data.corrupt import to_image, to_pixels
    from hydractl.data.hashes import image_hash

    image = images[place]
    draw = np.random.default_rng((seed, image_hash(image)))
    return to_image(kind.function(to_pixels(image), kind.strength(severity, image.size), draw))
