"""Data for the pictures of a report: thinned curves, and samples: the least sure, the wrong, and the oddest."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from hydractl.data.images import with_channels
from hydractl.data.samples import Samples
from hydractl.evaluation.results import Curves, Doubts, Reliability, RiskCurve, Roc, Sample, ScoreHistograms
from hydractl.evaluation.run import SystemPredictions
from hydractl.evaluation.system_numbers import id_key
from hydractl.metrics.arrays import FloatArray, IntArray
from hydractl.metrics.classification import PredictionTable, reliability_diagram
from hydractl.metrics.detection import risk_coverage, roc_curve
from hydractl.schema import Items
from hydractl.systems.system import EvaluationData, SetKey, System
from hydractl.tasks.labels import LabelSetTable
from hydractl.text import shortened

POINTS = 200  # of a curve: more cannot be seen
BINS = 40  # of a histogram of scores
DIGITS = 5
SHOWN = 8  # samples of each kind
SIDE = 96  # pixels of a picture on a page, which holds all of them itself
FEW = 48  # pixels up to which every one of them counts
LONGEST = 240  # characters of a text


def curves_of(predictions: SystemPredictions) -> Curves:
    """Returns reliability diagram, risk-coverage and ROC curves and score histograms.

    There is no reliability diagram of confidences without logits, since they need be no probabilities.
    """
    key = id_key(predictions)
    id_scores, correct = predictions.scores[key], predictions.right(key)
    risk = risk_coverage(predictions.confidence(key), correct)
    ood_scores = {other.name: scores for other, scores in predictions.scores.items() if other.role == "ood"}
    table = predictions.with_msp.get(key)
    return Curves(
        reliability=None if table is None else Reliability(**_rounded(reliability_diagram(table.msp, correct))),
        risk_coverage=RiskCurve(**_rounded(risk, _thinned(risk.coverage))),
        roc={name: _roc(id_scores, scores) for name, scores in ood_scores.items()},
        scores=_histograms(id_scores, ood_scores),
    )


def _roc(id_scores: FloatArray, ood_scores: FloatArray) -> Roc:
    curve = roc_curve(id_scores, ood_scores)
    # Evenly along the curve, which is steep at one end and flat at the other.
    kept = _thinned((curve.false_positive_rate + curve.true_positive_rate) / 2)
    return Roc(**_rounded(curve, kept))


def _thinned(ascending: FloatArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    places = np.searchsorted(ascending, np.linspace(ascending[0], ascending[-1], POINTS))
    return np.unique(np.concatenate([[0], places, [len(ascending) - 1]]))


def _histograms(id_scores: FloatArray, ood_scores: Mapping[str, FloatArray]) -> ScoreHistograms:
    everything = np.concatenate([id_scores, *ood_scores.values()])
    low, high = float(everything.min()), float(everything.max())
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)

    def shares(scores: FloatArray) -> tuple[float, ...]:
        return _round(np.histogram(scores, edges)[0] / len(scores))

    return ScoreHistograms(
        _round(edges), shares(id_scores), {name: shares(scores) for name, scores in ood_scores.items()}
    )


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
    if key not in predictions.with_msp:
        return None
    confidence = predictions.confidence(key)
    wrong = np.flatnonzero(~predictions.right(key))
    least = np.argsort(confidence, kind="stable")[:SHOWN]
    surest = wrong[np.argsort(-confidence[wrong], kind="stable")][:SHOWN]

    def shown(places: IntArray) -> tuple[Sample, ...]:
        return tuple(_sample(predictions, key, samples, int(place), names=names) for place in places)

    return Doubts(shown(least), shown(surest))


def oddest_of(predictions: SystemPredictions, data: EvaluationData, predictor: System) -> dict[str, Items[Sample]]:
    """Returns the oddest samples of the ID set and of each OOD set, with their profiles, by the path of the set.

    Returns an empty dictionary for a system that is not scored by its own file, or whose score has no profiles.
    """
    oddest: dict[str, Items[Sample]] = {}
    if predictions.own_fit is None:
        return oddest
    for key in (key for key in predictions.with_msp if key.role in ("id", "ood")):
        places = np.argsort(-predictions.scores[key], kind="stable")[:SHOWN]
        if (profiles := predictor.profiles(data.sets[key].subset(places))) is None:
            return {}
        oddest[key.path] = tuple(
            replace(
                _sample(predictions, key, data.sets[key], int(place), names=predictor.labels),
                typicality=round(float(typical), DIGITS),
                profile=_round(layers),
            )
            for place, typical, layers in zip(places, *profiles, strict=True)
        )
    return oddest


def _sample(
    predictions: SystemPredictions, key: SetKey, samples: Samples, place: int, *, names: Sequence[str] | None
) -> Sample:
    """Returns what a page shows of one sample."""
    table = predictions.with_msp[key]
    confidence = -predictions.scores[key] if predictions.own_confidence else table.msp

    return Sample(
        round(float(confidence[place]), DIGITS),
        called(table, table.prediction, place, names),
        None if table.outcomes is None else called(table, table.outcomes.labels, place, names),
        text=shortened(samples.called(place), LONGEST) if samples.modality == "text" else None,
        image=data_uri(samples.inputs[place]) if samples.modality == "image" else None,
    )


def called(table: PredictionTable, numbers: IntArray, place: int, names: Sequence[str] | None) -> str:
    """Returns the names of a sample's class, labels or words' labels."""
    classes = numbers[place : place + 1].ravel()
    if isinstance(table, LabelSetTable):
        classes = np.flatnonzero(classes)
    return ", ".join(names[number] if names else str(number) for number in classes[classes >= 0].tolist())


def data_uri(image: Image.Image) -> str:
    """Returns a small picture of an image as part of a page."""
    small = with_channels(image, 3).copy()
    small.thumbnail((SIDE, SIDE))
    form = "png" if max(small.size) <= FEW else "jpeg"
    out = BytesIO()
    small.save(out, form)
    return f"data:image/{form};base64,{b64encode(out.getvalue()).decode()}"
