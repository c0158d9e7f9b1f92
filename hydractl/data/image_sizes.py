"""Tells where OOD images differ from ID images in size so much that detection says nothing of their content."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from hydractl.data.samples import Samples, spread
from hydractl.errors import DataError

LOOKED_AT = 200  # images of each set
ALONE = 0.95  # AUROC from which the size alone tells sets apart


def size_notes(inside: Samples, outside: Iterable[Samples]) -> Iterator[str]:
    """Yields a note for each OOD set whose images are mostly larger, or smaller, than the ID images."""
    if inside.modality != "image":
        return
    usual = _sizes(inside)
    for samples in outside:
        sizes = _sizes(samples)
        larger = float((sizes[:, None] > usual).mean() + (sizes[:, None] == usual).mean() / 2)
        if len(usual) and len(sizes) and max(larger, 1 - larger) >= ALONE:
            yield (
                f"{samples.name}: images of {np.median(sizes):.0f} pixels, ID images have {np.median(usual):.0f}: the "
                "size alone tells them apart, and early layers see it; bring them to one size and format to measure "
                "content"
            )


def _sizes(samples: Samples) -> NDArray[np.float64]:
    """Returns the longer side of some of the images, pixels; of those that can be read."""
    found = []
    for place in spread(len(samples), LOOKED_AT):
        try:
            found.append(max(samples.inputs[place].size))
        except DataError:
            continue  # whoever reads all of them says which
    return np.array(found, dtype=np.float64)
