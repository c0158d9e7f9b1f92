"""The temperature of one system, and what it changes."""

from __future__ import annotations

from dataclasses import dataclass

from hydractl.evaluation.predictor import Predictor
from hydractl.evaluation.run import OnBatch, collect
from hydractl.evaluation.sets import SetKey
from hydractl.uncertainty.table import tabulate
from hydractl.uncertainty.temperature import FittedTemperature, fit_temperature


@dataclass(frozen=True)
class CalibrationResult:
    """A fitted temperature, and the share of the data whose predicted class it changes: none for one member."""

    fitted: FittedTemperature
    argmax_changed: float


def calibrate(predictor: Predictor, key: SetKey, on_batch: OnBatch) -> CalibrationResult:
    """The temperature with the least NLL of the mean member probability on a labelled set.

    Raises:
        DataError: the set cannot be read or has no labels.
    """
    logits, labels = collect(predictor.logits(key), on_batch)
    fitted = fit_temperature(logits, labels)
    before, after = (tabulate(logits, labels, temperature).prediction for temperature in (1.0, fitted.temperature))
    return CalibrationResult(fitted, float((before != after).mean()))
