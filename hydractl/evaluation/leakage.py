"""Refuses an evaluation on samples that were used to choose heads or to fit anything in a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hydractl.data.seen import overlap
from hydractl.data.sources import Samples
from hydractl.errors import DataError


def refuse_used(model: str, provenance: Mapping[str, Any], samples: Samples) -> None:
    """Raises DataError when samples of an evaluation were used to make the model.

    Args:
        model: what messages call it.
        provenance: of the model; the search data of each step that led to it is looked for.
        samples: to be evaluated on; hashed only when there is something to compare with.
    """
    for name, entry in search_data(provenance):
        if count := overlap(entry, samples.content_hashes(), f"{model}: {name}"):
            raise DataError(
                f"{samples.name}: {count} of {len(samples)} samples were used to make {model} (as {name}): "
                "an evaluation on them would flatter it: name other data"
            )


def refuse_overlap(calibration: Samples, samples: Samples) -> None:
    """Raises DataError when samples of an evaluation are among those something is fitted on.

    Args:
        calibration: what temperature or prediction sets are fitted on.
        samples: to be evaluated on.
    """
    if count := int(np.isin(samples.content_hashes(), calibration.content_hashes()).sum()):
        raise DataError(
            f"{samples.name}: {count} of {len(samples)} samples are in --calib-data {calibration.name} too: "
            "an evaluation on them would flatter every system: calibrate on other data"
        )


def search_data(provenance: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Name and sketch of every data set that a model's history remembers.

    Args:
        provenance: a manifest's; each step may carry `options.search_data`, its inputs their own provenance.
    """
    options = provenance.get("options")
    remembered = options.get("search_data") if isinstance(options, Mapping) else None
    if isinstance(remembered, Mapping):
        yield from remembered.items()
    inputs = provenance.get("inputs")
    for origin in inputs if isinstance(inputs, list) else ():
        if isinstance(origin, Mapping) and isinstance(origin.get("provenance"), Mapping):
            yield from search_data(origin["provenance"])
