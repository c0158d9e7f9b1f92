"""Parts of a data set by the content of its samples: the same for any order and file format, and never overlapping."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hydractl.data.hashes import Hashes
from hydractl.errors import DataError

FORM = re.compile(
    r"(?P<whole>.+)%(?P<first>\d{1,4})(?:-(?P<last>\d{1,4}))?/(?P<count>\d{1,4})(?:@(?P<seed>\d{1,18}))?", re.ASCII
)
MOST = 1000


@dataclass(frozen=True)
class Part:
    """Parts `first` to `last` of `count` equal ones, numbered from 1 on; another seed divides otherwise.

    Equal samples are in the same part, so that parts have no sample in common. They are equal in expectation only. A
    part of a part (`within`) divides that anew, whatever the numbers of parts are.
    """

    first: int
    last: int
    count: int
    seed: int = 0
    within: Part | None = None

    def __str__(self) -> str:
        span = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.within or ''}%{span}/{self.count}" + (f"@{self.seed}" if self.seed else "")

    def of(self, hashes: Hashes) -> NDArray[np.int64]:
        """The positions of the samples in it, ascending.

        Args:
            hashes: `[N]`, of the samples' contents.
        """
        return np.flatnonzero(self._holds(hashes)[0])

    def _holds(self, hashes: Hashes) -> tuple[NDArray[np.bool_], Hashes]:
        """Which samples are in it, and the hashes mixed once for each time that they were divided."""
        outer, hashes = self.within._holds(hashes) if self.within else (np.ones(len(hashes), bool), hashes)
        mixed = _mixed(hashes, self.seed)
        number = mixed % np.uint64(self.count) + np.uint64(1)
        return outer & (self.first <= number) & (number <= self.last), mixed


def split_off_part(text: str) -> tuple[str, Part | None]:
    """A source and the part of it that is asked for: `SOURCE%I/N`, `SOURCE%I-J/N`, with `@SEED` behind or not.

    Raises:
        DataError: a part that there is not.
    """
    found = FORM.fullmatch(text)
    if found is None:
        return text, None
    first, count = int(found["first"]), int(found["count"])
    part = Part(first, int(found["last"] or first), count, int(found["seed"] or 0))
    if not 1 <= part.first <= part.last <= count <= MOST:
        raise DataError(f"{text}: there is no such part: write %I/N or %I-J/N with 1 <= I <= J <= N <= {MOST}")
    return found["whole"], part


def _mixed(hashes: Hashes, seed: int) -> Hashes:
    """The hashes, mixed with the seed: the finish of SplitMix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = hashes.astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
