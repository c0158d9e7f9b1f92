"""Images made worse by a known amount: how a model bears a shift.

Images are corrupted as they are stored, one by one when they are asked for, before the model's own resizing. What is
drawn at random goes by a seed and by the image's own content, so a sample is made worse alike in whatever order, part
or stream of the data it comes. Noise is thus drawn anew: to compare with publications, name the benchmarks' own files
as shifted data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from PIL import Image

from hydractl.data.corruptions.kinds import CORRUPTIONS, GROUPS, SEVERITIES, Corruption
from hydractl.data.corruptions.pixels import to_image, to_pixels
from hydractl.data.hashes import image_hash
from hydractl.data.samples import Samples
from hydractl.data.streams import SampleStream
from hydractl.errors import OptionError

ASKED = re.compile(r"(?P<kinds>[^:]+)(?::(?P<first>[1-5])(?:-(?P<last>[1-5]))?)?")


def parse_corruptions(text: str) -> list[tuple[Corruption, int]]:
    """The corruptions asked for, each with a severity.

    Args:
        text: kinds, groups of kinds or `all`, with commas between, and severities, all five if left out; groups and
            `all` stand for those of the benchmarks' fifteen: `gaussian_noise,weather:1-3`.

    Raises:
        OptionError: an unknown or repeated kind, or severities that are not among 1 to 5.
    """
    if (asked := ASKED.fullmatch(text)) is None:
        raise OptionError(
            f"`corrupt` {text}: expected kinds, then severities from 1 to 5, as in gaussian_noise,contrast:1-5"
        )
    kinds = [kind for name in asked["kinds"].split(",") for kind in _named(name.strip())]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise OptionError(f"`corrupt` {text}: {kind.name} is named twice: name it once")
    first, last = (int(asked["first"]), int(asked["last"] or asked["first"])) if asked["first"] else (1, 5)
    if first > last:
        raise OptionError(f"`corrupt` {text}: severities go upwards: write {last}-{first}")
    return [(kind, severity) for kind in kinds for severity in SEVERITIES[first - 1 : last]]


def _named(name: str) -> list[Corruption]:
    found = [kind for kind in CORRUPTIONS if kind.name == name or (name in ("all", kind.group) and not kind.extra)]
    if not found:
        names = [kind.name for kind in CORRUPTIONS]
        raise OptionError(f"`corrupt` {name}: is no corruption: choose from {', '.join(['all', *GROUPS, *names])}")
    return found


@overload
def corrupted(images: Samples, kind: Corruption, severity: int, seed: int = 0) -> Samples: ...
@overload
def corrupted(images: SampleStream, kind: Corruption, severity: int, seed: int = 0) -> SampleStream: ...
def corrupted(images: Samples | SampleStream, kind: Corruption, severity: int, seed: int = 0) -> Samples | SampleStream:
    """The samples with their images made worse when asked for; the same image for the same seed.

    Args:
        severity: 1 to 5, 5 is worst.
        seed: of what is drawn at random.

    Raises:
        OptionError: texts, or an unknown severity.
    """
    if images.modality != "image":
        raise OptionError(f"`corrupt` is for images, {images.name} holds texts: give shifted texts as `shift_data`")
    if severity not in SEVERITIES:
        raise OptionError(f"`corrupt` {kind.name}:{severity}: severities are 1 to 5")
    if isinstance(images, SampleStream):
        return images.through(lambda block: corrupted(block, kind, severity, seed))
    return replace(images, inputs=_Corrupted(images.inputs, kind, severity, seed), hashes=None)


@dataclass(frozen=True, eq=False)
class _Corrupted(Sequence[Image.Image]):
    inputs: Sequence[Any]
    kind: Corruption
    severity: int
    seed: int

    def __len__(self) -> int:
        return len(self.inputs)

    @overload
    def __getitem__(self, index: int) -> Image.Image: ...
    @overload
    def __getitem__(self, index: slice) -> _Corrupted: ...
    def __getitem__(self, index: int | slice) -> Image.Image | _Corrupted:
        if isinstance(index, int):
            return self._worse(self.inputs[index])
        return replace(self, inputs=self.inputs[index])

    def _worse(self, image: Image.Image) -> Image.Image:
        draw = np.random.default_rng((self.seed, image_hash(image)))
        return to_image(self.kind.function(to_pixels(image), self.kind.strength(self.severity, image.size), draw))
