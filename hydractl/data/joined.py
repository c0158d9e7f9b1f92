"""Several data sets as one, without labels."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np

from hydractl.data.samples import Samples


@dataclass(frozen=True)
class Chained(Sequence[Any]):
    """The inputs of one data set after those of another, read when asked for."""

    parts: Sequence[Sequence[Any]]
    ends: Sequence[int]

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        place = index % len(self)
        part = bisect_right(self.ends, place)
        return self.parts[part][place - (self.ends[part - 1] if part else 0)]


def join(sets: Sequence[Samples]) -> Samples:
    """The samples of data sets of one kind, one set after the other, without the labels that they may have.

    Args:
        sets: at least one.
    """
    if sets[0].modality == "text":  # what looks into texts looks into lists
        inputs: Sequence[Any] = list(chain.from_iterable(samples.inputs for samples in sets))
    else:
        inputs = Chained([samples.inputs for samples in sets], list(accumulate(map(len, sets))))
    hashes = [samples.hashes for samples in sets if samples.hashes is not None]
    known = np.concatenate(hashes) if len(hashes) == len(sets) else None
    return Samples(" and ".join(samples.name for samples in sets), sets[0].modality, inputs, hashes=known)
