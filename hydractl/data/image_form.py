"""Tells where OOD images differ from ID images in size or compression so much that detection is not of content."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hydractl.data.samples import Samples, spread_places
from hydractl.errors import DataError

LOOKED_AT = 200  # images of each set
ALONE = 0.95  # AUROC from which a measure alone tells sets apart


class FormMeasure(NamedTuple):
    """One property of an image's form, and the words for it."""

    name: str
    of: Callable[[Image.Image], float]
    unit: str
    remedy: str


def _coarseness(image: Image.Image) -> float:
    """Returns the mean step of a JPEG's first quantization table, 0 for images without one."""
    tables = getattr(image, "quantization", None)
    return float(np.mean(next(iter(tables.values())))) if tables else 0.0


MEASURES = (
    FormMeasure("size", lambda image: max(image.size), "pixels", "bring them to one size"),
    FormMeasure("compression", _coarseness, "mean JPEG step, 0 without", "save them alike"),
)


def form_notes(id_data: Samples, ood_data: Iterable[Samples]) -> Iterator[str]:
    """Yields a note for each OOD set that a measure of form alone tells from the ID images."""
    if id_data.modality != "image":
        return
    usual = _measured(id_data)
    for samples in ood_data:
        for measure, id_values, other in zip(MEASURES, usual, _measured(samples), strict=True):
            if len(id_values) and len(other) and _told_apart(id_values, other) >= ALONE:
                yield (
                    f"{samples.name}: the {measure.name} of its images alone ({np.median(other):.3g} against "
                    f"{np.median(id_values):.3g} of ID images; {measure.unit}) tells them apart, and early layers "
                    f"see it: {measure.remedy} to measure content"
                )


def _told_apart(usual: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Returns the AUROC of a measure, in the direction in which it is larger."""
    larger = float((other[:, None] > usual).mean() + (other[:, None] == usual).mean() / 2)
    return max(larger, 1 - larger)


def _measured(samples: Samples) -> list[NDArray[np.float64]]:
    """Returns each measure of some of the images, of those that can be read."""
    rows: list[list[float]] = []
    for place in spread_places(len(samples), LOOKED_AT):
        try:
            image = samples.inputs[place]
        except DataError:
            continue  # whoever reads all of them says which
        rows.append([measure.of(image) for measure in MEASURES])
    return list(np.array(rows, dtype=np.float64).reshape(-1, len(MEASURES)).T)
