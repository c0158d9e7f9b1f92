"""Images made worse by a known amount: how a model bears a shift.

Definitions and severities are those of ImageNet-C and CIFAR-10-C (Hendrycks & Dietterich 2019, arXiv 1903.12261), for
the kinds that need no more than NumPy, SciPy and Pillow; small images take those of CIFAR-10-C. Images are corrupted as
they are stored, before the model's own resizing, and noise is drawn anew: to compare with publications, name the
benchmarks' own files with --shift-data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter

from hydractl.data.samples import Samples
from hydractl.errors import OptionError

Strengths = dict[str, tuple[Any, ...]]
#: The strength of each kind at severities 1 to 5, for images of 64 pixels and more (ImageNet-C).
STRENGTHS: Strengths = {
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),  # standard deviation, of 1
    "shot_noise": (60, 25, 12, 5, 3),  # photons at full light
    "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),  # share of values turned black or white
    "speckle_noise": (0.15, 0.2, 0.35, 0.45, 0.6),  # standard deviation, of the value
    "gaussian_blur": (1, 2, 3, 4, 6),  # sigma, pixels
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),  # added to V of HSV
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),  # factor about each channel's mean
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),  # factor and offset of S of HSV
    "jpeg_compression": (25, 18, 15, 10, 7),  # quality
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),  # share of the width kept
}
#: The same for smaller images (CIFAR-10-C).
SMALL_STRENGTHS: Strengths = {
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "shot_noise": (500, 250, 100, 75, 50),
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
    "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1),
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    "jpeg_compression": (80, 65, 58, 50, 40),
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
}
SMALL = 64
BOX = Image.Resampling.BOX
Pixels = NDArray[np.float64]


def corrupted(samples: Samples, kind: str, severity: int, seed: int = 0) -> Samples:
    """The samples with their images made worse when asked for; the same image for the same seed.

    Args:
        samples: of images.
        kind: a key of `STRENGTHS`.
        severity: 1 to 5, 5 is worst.
        seed: of the noise.

    Raises:
        OptionError: texts, an unknown kind or severity.
    """
    if samples.modality != "image":
        raise OptionError("--corrupt makes images worse; for texts name shifted data with --shift-data")
    if kind not in STRENGTHS:
        raise OptionError(f"--corrupt {kind}: no such corruption: choose from {', '.join(STRENGTHS)}")
    if not 1 <= severity <= 5:
        raise OptionError(f"--corrupt {kind}:{severity}: severities are 1 to 5")
    return replace(samples, inputs=_Corrupted(samples.inputs, kind, severity, seed), hashes=None)


@dataclass(frozen=True, eq=False)
class _Corrupted(Sequence[Image.Image]):
    inputs: Sequence[Any]
    kind: str
    severity: int
    seed: int

    def __len__(self) -> int:
        return len(self.inputs)

    @overload
    def __getitem__(self, index: int) -> Image.Image: ...
    @overload
    def __getitem__(self, index: slice) -> list[Image.Image]: ...
    def __getitem__(self, index: int | slice) -> Image.Image | list[Image.Image]:
        if isinstance(index, int):
            return self._worse(self.inputs[index], range(len(self))[index])
        positions = range(len(self))[index]
        return [self._worse(image, at) for image, at in zip(self.inputs[index], positions, strict=True)]

    def _worse(self, image: Image.Image, position: int) -> Image.Image:
        image = image if image.mode in ("L", "RGB") else image.convert("RGB")
        return _apply(image, self.kind, self.severity, (self.seed, position))


def _apply(image: Image.Image, kind: str, severity: int, seed: tuple[int, int]) -> Image.Image:
    strength = (SMALL_STRENGTHS if min(image.size) < SMALL else STRENGTHS)[kind][severity - 1]
    match kind:
        case "brightness":
            return _shifted(image, "V", 1.0, strength)
        case "saturate":
            return _shifted(image, "S", *strength)
        case "jpeg_compression":
            encoded = BytesIO()
            image.save(encoded, "JPEG", quality=strength)
            return Image.open(encoded)
        case "pixelate":
            small = image.resize((max(1, int(image.width * strength)), max(1, int(image.height * strength))), BOX)
            return small.resize(image.size, BOX)
        case _:
            pixels = np.asarray(image, dtype=np.float64) / 255
            worse = _filtered(pixels, kind, strength, np.random.default_rng(seed))
            return Image.fromarray((worse.clip(0, 1) * 255).astype(np.uint8))


def _filtered(x: Pixels, kind: str, strength: float, draw: np.random.Generator) -> Pixels:
    """Pixels `[height,width(,channels)]` from 0 to 1, which may come out beyond."""
    match kind:
        case "gaussian_noise":
            return x + draw.normal(scale=strength, size=x.shape)
        case "shot_noise":
            return draw.poisson(x * strength) / strength
        case "impulse_noise":
            hit, white = draw.random(x.shape) < strength, draw.random(x.shape) < 0.5
            return np.where(hit, white.astype(np.float64), x)
        case "speckle_noise":
            return x + x * draw.normal(scale=strength, size=x.shape)
        case "gaussian_blur":
            return gaussian_filter(x, strength, mode="nearest", axes=(0, 1))
        case _:
            means = x.mean(axis=(0, 1), keepdims=True)
            return np.asarray((x - means) * strength + means)


def _shifted(image: Image.Image, channel: str, factor: float, offset: float) -> Image.Image:
    """The image with one channel of HSV changed; a grey one has no saturation, and its value is V."""
    if image.mode == "L":
        return image.point(lambda v: factor * v + 255 * offset) if channel == "V" else image
    channels = dict(zip("HSV", image.convert("HSV").split(), strict=True))
    channels[channel] = channels[channel].point(lambda v: factor * v + 255 * offset)
    return Image.merge("HSV", tuple(channels.values())).convert("RGB")
