"""Images made worse by a known amount, with Pillow's own operations: how a model bears a shift.

Kinds and their order of severity follow ImageNet-C and CIFAR-10-C (Hendrycks & Dietterich 2019) where Pillow has the
operation; radii and blocks are in pixels of the image as it is stored. They are not those benchmarks' files, so
numbers are to be compared between systems, not with publications.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, overload

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter

from hydractl.data.sources import Samples
from hydractl.errors import OptionError

#: The strength of each kind at severities 1 to 5.
STRENGTHS: dict[str, tuple[float, ...]] = {
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),  # standard deviation, of 1
    "gaussian_blur": (0.4, 0.6, 0.8, 1.0, 1.5),  # sigma, pixels
    "brightness": (1.1, 1.2, 1.3, 1.4, 1.5),  # factor
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),  # factor
    "saturation": (0.7, 0.5, 0.3, 0.15, 0.0),  # factor
    "jpeg": (25, 18, 15, 10, 7),  # quality
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),  # share of the width kept
}


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
        return _apply(image, self.kind, STRENGTHS[self.kind][self.severity - 1], (self.seed, position))


def _apply(image: Image.Image, kind: str, strength: float, seed: tuple[int, int]) -> Image.Image:
    match kind:
        case "gaussian_noise":
            pixels = np.asarray(image, dtype=np.float64)
            noisy = pixels + 255 * strength * np.random.default_rng(seed).normal(size=pixels.shape)
            return Image.fromarray(noisy.round().clip(0, 255).astype(np.uint8))
        case "gaussian_blur":
            return image.filter(ImageFilter.GaussianBlur(strength))
        case "brightness":
            return ImageEnhance.Brightness(image).enhance(strength)
        case "contrast":
            return ImageEnhance.Contrast(image).enhance(strength)
        case "saturation":
            return ImageEnhance.Color(image).enhance(strength)
        case "jpeg":
            encoded = BytesIO()
            image.save(encoded, "JPEG", quality=int(strength))
            return Image.open(encoded)
        case _:
            small = [max(1, round(side * strength)) for side in image.size]
            return image.resize((small[0], small[1]), Image.Resampling.BOX).resize(image.size, Image.Resampling.NEAREST)
