"""The curves behind the numbers of one system, thin enough to draw and to keep in a report."""

from __future__ import annotations

from typing import Any

import numpy as np

from hydractl.evaluation.results import id_key
from hydractl.evaluation.run import Predictions
from hydractl.metrics.calibration import reliability_diagram
from hydractl.metrics.checks import BoolArray, FloatArray
from hydractl.metrics.ood_detection import roc_curve
from hydractl.metrics.selective import risk_coverage

POINTS = 200  # of a curve: more cannot be seen
BINS = 40  # of a histogram of scores
DIGITS = 5


def curves_json(predictions: Predictions) -> dict[str, Any]:
    """Reliability diagram, risk-coverage and ROC curves and score histograms, as plain JSON; None is an empty bin.

    Of confidences without logits there is no reliability diagram: they need be no probabilities.
    """
    key = id_key(predictions)
    inside, correct = predictions.scores[key], predictions.right(key)
    risk = risk_coverage(predictions.confidence(key), correct)
    kept = _thinned(risk.coverage)
    outside = {other.name: scores for other, scores in predictions.scores.items() if other.role == "ood"}
    table = predictions.tables.get(key)
    return {
        **({} if table is None else {"reliability": _reliability(table.msp, correct)}),
        "risk_coverage": {"coverage": _rounded(risk.coverage[kept]), "risk": _rounded(risk.risk[kept])},
        "roc": {name: _roc(inside, scores) for name, scores in outside.items()},
        "scores": _histograms(inside, outside),
    }


def _reliability(msp: FloatArray, correct: BoolArray) -> dict[str, list[Any]]:
    found = reliability_diagram(msp, correct)
    return {
        "edges": _rounded(found.edges),
        "counts": found.counts.tolist(),
        "confidence": _rounded(found.confidence),
        "accuracy": _rounded(found.accuracy),
    }


def _roc(inside: FloatArray, outside: FloatArray) -> dict[str, list[float | None]]:
    curve = roc_curve(inside, outside)
    # Evenly along the curve, which is steep at one end and flat at the other.
    kept = _thinned((curve.false_positive_rate + curve.true_positive_rate) / 2)
    return {
        "false_positive_rate": _rounded(curve.false_positive_rate[kept]),
        "true_positive_rate": _rounded(curve.true_positive_rate[kept]),
    }


def _thinned(ascending: FloatArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    places = np.searchsorted(ascending, np.linspace(ascending[0], ascending[-1], POINTS))
    return np.unique(np.concatenate([[0], places, [len(ascending) - 1]]))


def _histograms(inside: FloatArray, outside: dict[str, FloatArray]) -> dict[str, Any]:
    everything = np.concatenate([inside, *outside.values()])
    low, high = float(everything.min()), float(everything.max())
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)

    def shares(scores: FloatArray) -> list[float | None]:
        return _rounded(np.histogram(scores, edges)[0] / len(scores))

    return {
        "edges": _rounded(edges),
        "id": shares(inside),
        "ood": {name: shares(scores) for name, scores in outside.items()},
    }


def _rounded(values: FloatArray) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), DIGITS) for value in values]
