"""Data for the pictures of a report: thinned curves, and the samples that the system is least sure of."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from hydractl.data.samples import Samples
from hydractl.evaluation.results import Curves, Doubts, Reliability, RiskCurve, Roc, Sample, ScoreHistograms
from hydractl.evaluation.run import SystemPredictions
from hydractl.evaluation.system_numbers import id_key
from hydractl.metrics.calibration import reliability_diagram
from hydractl.metrics.checks import FloatArray
from hydractl.metrics.ood_detection import roc_curve
from hydractl.metrics.selective import risk_coverage
from hydractl.text import shortened

POINTS = 200  # of a curve: more cannot be seen
BINS = 40  # of a histogram of scores
DIGITS = 5
SHOWN = 8  # samples of each kind
SIDE = 96  # pixels of a picture on a page, which holds all of them itself
FEW = 48  # pixels up to which every one of them counts
LONGEST = 240  # characters of a text


def curves_of(predictions: SystemPredictions, doubts: Doubts | None = None) -> Curves:
    """Returns reliability diagram, risk-coverage and ROC curves and score histograms.

    There is no reliability diagram of confidences without logits, since they need be no probabilities.
    """
    key = id_key(predictions)
    inside, correct = predictions.scores[key], predictions.right(key)
    risk = risk_coverage(predictions.confidence(key), correct)
    outside = {other.name: scores for other, scores in predictions.scores.items() if other.role == "ood"}
    table = predictions.tables.get(key)
    return Curves(
        reliability=None if table is None else Reliability(**_rounded(reliability_diagram(table.msp, correct))),
        risk_coverage=RiskCurve(**_rounded(risk, _thinned(risk.coverage))),
        roc={name: _roc(inside, scores) for name, scores in outside.items()},
        scores=_histograms(inside, outside),
        doubts=doubts,
    )


def _roc(inside: FloatArray, outside: FloatArray) -> Roc:
    curve = roc_curve(inside, outside)
    # Evenly along the curve, which is steep at one end and flat at the other.
    kept = _thinned((curve.false_positive_rate + curve.true_positive_rate) / 2)
    return Roc(**_rounded(curve, kept))


def _thinned(ascending: FloatArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    places = np.searchsorted(ascending, np.linspace(ascending[0], ascending[-1], POINTS))
    return np.unique(np.concatenate([[0], places, [len(ascending) - 1]]))


def _histograms(inside: FloatArray, outside: Mapping[str, FloatArray]) -> ScoreHistograms:
    everything = np.concatenate([inside, *outside.values()])
    low, high = float(everything.min()), float(everything.max())
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)

    def shares(scores: FloatArray) -> tuple[float, ...]:
        return _round(np.histogram(scores, edges)[0] / len(scores))

    return ScoreHistograms(_round(edges), shares(inside), {name: shares(scores) for name, scores in outside.items()})


def _rounded(curve: Any, kept: Any = ...) -> dict[str, Any]:
    """Returns the kept points of a curve, column by column."""
    return {name: _round(values[kept]) for name, values in vars(curve).items()}


def _round(values: FloatArray) -> tuple[Any, ...]:
    """Returns the numbers with the digits that can be seen; None for NaN."""
    return tuple(None if value != value else round(value, DIGITS) for value in values.tolist())


def doubts_of(predictions: SystemPredictions, samples: Samples, names: Sequence[str] | None) -> Doubts | None:
    """Returns the ID samples of least confidence, and the wrong ones of most; None without logits.

    Args:
        names: of the classes; numbers stand for them if they have none.
    """
    key = id_key(predictions)
    table = predictions.tables.get(key)
    if table is None:
        return None
    confidence, labels = predictions.confidence(key), table.labelled().labels
    wrong = np.flatnonzero(~predictions.right(key))

    def shown(place: int) -> Sample:
        predicted, label = int(table.prediction[place]), int(labels[place])
        return Sample(
            round(float(confidence[place]), DIGITS),
            names[predicted] if names else str(predicted),
            names[label] if names else str(label),
            text=shortened(samples.called(place), LONGEST) if samples.modality == "text" else None,
            image=_data_uri(samples.inputs[place]) if samples.modality == "image" else None,
        )

    least = np.argsort(confidence, kind="stable")[:SHOWN]
    surest = wrong[np.argsort(-confidence[wrong], kind="stable")][:SHOWN]
    return Doubts(tuple(shown(int(place)) for place in least), tuple(shown(int(place)) for place in surest))


def _data_uri(image: Image.Image) -> str:
    """Returns a small picture of an image as part of a page."""
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    form = "png" if max(small.size) <= FEW else "jpeg"
    out = BytesIO()
    small.save(out, form)
    return f"data:image/{form};base64,{b64encode(out.getvalue()).decode()}"
