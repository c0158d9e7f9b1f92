"""One system over the data of an evaluation: logits stream through, a few numbers per sample stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hydractl.errors import DataError, OptionError
from hydractl.evaluation.predictor import LogitBatch, Predictor
from hydractl.evaluation.sets import SetKey
from hydractl.uncertainty.checks import IntArray, Logits
from hydractl.uncertainty.conformal import (
    ConformalMethod,
    PredictionSets,
    conformal_threshold,
    nonconformity,
    prediction_sets,
)
from hydractl.uncertainty.table import PredictionTable, concatenate, in_order, tabulate
from hydractl.uncertainty.temperature import FittedTemperature, fit_temperature

OnBatch = Callable[[int], None]
#: Told the set that starts; gives what to tell the size of each finished batch.
OnSet = Callable[[SetKey], AbstractContextManager[OnBatch]]


@dataclass(frozen=True)
class Conformal:
    """How prediction sets are made, and the share of them that shall hold the right class."""

    method: ConformalMethod
    coverage: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """What the calibration data settled before the evaluation: temperature and threshold of prediction sets."""

    temperature: float
    fitted: FittedTemperature | None = None
    threshold: float | None = None


@dataclass(frozen=True, eq=False)
class Predictions:
    """What one system says of every set; `sets` are prediction sets of the in-distribution data."""

    calibration: Calibration
    tables: Mapping[SetKey, PredictionTable]
    sets: PredictionSets | None = None


def predict_sets(
    predictor: Predictor,
    keys: Sequence[SetKey],
    temperature: float | Literal["fit"] | None = None,
    conformal: Conformal | None = None,
    on_set: OnSet | None = None,
) -> Predictions:
    """The per-sample quantities of a system on every set; memory does not grow with the number of classes.

    Args:
        keys: the sets; the one for calibration comes first whatever its place here.
        temperature: a number, `fit` on the calibration set, or None for the system's own.
        conformal: whether to make prediction sets, which needs the calibration set.

    Raises:
        DataError: a set cannot be read, or logits or labels make no sense.
        OptionError: something is to be fitted and there is no calibration set.
    """
    watch = on_set or _unwatched
    settled = _calibrate(predictor, keys, temperature, conformal, watch)
    tables: dict[SetKey, PredictionTable] = {}
    sets: PredictionSets | None = None
    for key in keys:
        if key.role == "calibration":
            continue
        asked = conformal if key.role == "id" else None
        with watch(key) as advance:
            tables[key], made = _reduce(predictor.logits(key), settled, asked, advance)
        sets = made if key.role == "id" else sets
    return Predictions(settled, tables, sets)


def _calibrate(
    predictor: Predictor,
    keys: Sequence[SetKey],
    temperature: float | Literal["fit"] | None,
    conformal: Conformal | None,
    watch: OnSet,
) -> Calibration:
    chosen = predictor.temperature if temperature in (None, "fit") else float(temperature or 1.0)
    if temperature != "fit" and conformal is None:
        return Calibration(chosen)
    key = next((key for key in keys if key.role == "calibration"), None)
    if key is None:
        raise OptionError("--temperature fit and --conformal need held-out labelled data: pass --calib-data")
    with watch(key) as advance:
        logits, labels = collect(predictor.logits(key), advance)
    fitted = fit_temperature(logits, labels) if temperature == "fit" else None
    chosen = fitted.temperature if fitted else chosen
    if conformal is None:
        return Calibration(chosen, fitted)
    scores = nonconformity(logits, labels, conformal.method, chosen)
    return Calibration(chosen, fitted, conformal_threshold(scores, conformal.coverage))


def collect(batches: Iterator[LogitBatch], on_batch: OnBatch) -> tuple[Logits, IntArray]:
    """All logits `[M,N,C]` and labels `[N]` of a calibration set, in order.

    Raises:
        DataError: no samples, or no labels.
    """
    parts = []
    for batch in batches:
        parts.append(batch)
        on_batch(len(batch.positions))
    if not parts:
        raise DataError("the calibration data holds no samples")
    order = np.argsort(np.concatenate([part.positions.numpy() for part in parts]))
    logits = np.concatenate([part.member_logits.numpy() for part in parts], axis=1)[:, order]
    return logits, np.concatenate([_labels(part) for part in parts])[order]


def _reduce(
    batches: Iterator[LogitBatch], settled: Calibration, conformal: Conformal | None, on_batch: OnBatch
) -> tuple[PredictionTable, PredictionSets | None]:
    tables, positions, sizes, covered = [], [], [], []
    for batch in batches:
        logits = batch.member_logits.numpy()
        labels = None if batch.labels is None else batch.labels.numpy()
        tables.append(tabulate(logits, labels, settled.temperature))
        positions.append(batch.positions.numpy())
        if conformal is not None and settled.threshold is not None:
            sets = prediction_sets(logits, _labels(batch), settled.threshold, conformal.method, settled.temperature)
            sizes.append(sets.size)
            covered.append(sets.covered)
        on_batch(len(batch.positions))
    places = np.concatenate(positions) if positions else np.empty(0, dtype=np.int64)
    table = in_order(concatenate(tables), places)
    if not sizes:
        return table, None
    order = np.argsort(places)
    return table, PredictionSets(np.concatenate(sizes)[order], np.concatenate(covered)[order])


def _labels(batch: LogitBatch) -> IntArray:
    if batch.labels is None:
        raise DataError("the calibration data has no labels")
    return batch.labels.numpy()


def _unwatched(_key: SetKey) -> AbstractContextManager[OnBatch]:
    return nullcontext(lambda _samples: None)
