"""Samples for people to look at: those that a system doubts most, and those that it is sure of and wrong about."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from hydractl.data.samples import Samples
from hydractl.evaluation.results import id_key
from hydractl.evaluation.run import Predictions
from hydractl.text import shortened

SHOWN = 8  # of each kind
SIDE = 96  # pixels of a picture: it stands small on a page, of which all of them become a part
FEW = 48  # pixels up to which every one of them counts
LONGEST = 240  # characters of a text


def doubts_json(
    predictions: Predictions, samples: Samples, names: Sequence[str] | None
) -> dict[str, list[dict[str, Any]]]:
    """The ID samples of least confidence under `doubted`, and under `wrong` the wrong ones of most, as plain JSON.

    Nothing where confidences are all that is known of the answers.

    Args:
        names: of the classes; their numbers stand for them where there are none.
    """
    key = id_key(predictions)
    table = predictions.tables.get(key)
    if table is None:
        return {}
    confidence, labels = predictions.confidence(key), table.labelled().labels
    wrong = np.flatnonzero(~predictions.right(key))

    def shown(place: int) -> dict[str, Any]:
        said, right = (int(which[place]) for which in (table.prediction, labels))
        return {
            "confidence": round(float(confidence[place]), 5),
            "said": names[said] if names else str(said),
            "right": names[right] if names else str(right),
            **_content(samples, place),
        }

    return {
        "doubted": [shown(int(place)) for place in np.argsort(confidence, kind="stable")[:SHOWN]],
        "wrong": [shown(int(place)) for place in wrong[np.argsort(-confidence[wrong], kind="stable")][:SHOWN]],
    }


def _content(samples: Samples, place: int) -> dict[str, str]:
    if samples.modality == "text":
        return {"text": shortened(samples.called(place), LONGEST)}
    return {"image": _data_uri(samples.inputs[place])}


def _data_uri(image: Image.Image) -> str:
    """A small picture of an image as part of a page."""
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    form = "png" if max(small.size) <= FEW else "jpeg"
    out = BytesIO()
    small.save(out, form)
    return f"data:image/{form};base64,{b64encode(out.getvalue()).decode()}"
