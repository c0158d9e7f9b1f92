"""Fits a temperature or scaled classes on labelled samples, and puts them into a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.checkpoint.contents import Acceptance, Checkpoint
from hydractl.data.hashes import sketch
from hydractl.data.samples import Samples
from hydractl.evaluation.checkpoints import NetworkLike, NetworkSpec
from hydractl.evaluation.run import collect
from hydractl.evaluation.sets import EvaluationData, SetKey
from hydractl.evaluation.systems import Running
from hydractl.metrics.checks import Logits
from hydractl.metrics.scaling import FittedTemperature, FittedVector
from hydractl.model.prediction import prediction
from hydractl.surgery.numbers import with_scaled_classes
from hydractl.surgery.provenance import with_provenance

Fit = Callable[[Logits, NDArray[np.int64]], FittedTemperature | FittedVector]


def fit_network(
    network: NetworkLike,
    samples: Samples,
    running: Running,
    fit: Fit,
    *,
    rate: float,
    on_batch: Callable[[int], None],
) -> tuple[FittedTemperature | FittedVector, Acceptance]:
    """Returns what a fit on labelled ID samples finds, and the confidence that most of the samples reach.

    Args:
        fit: from member logits `[M,N,C]` and labels `[N]`.
        rate: share of the samples to accept, over 0 and up to 1.
        on_batch: called with the size of each batch that is answered.

    Raises:
        DataError: a sample cannot be read, or labels do not match.
    """
    key = SetKey("id", samples.name)
    networks = (
        NetworkSpec((network,)).open().load(EvaluationData({key: samples}, running.reading.match_labels), running)
    )
    answers = collect(networks.answers(key), on_batch, len(samples))
    fitted = fit(answers.member_logits, answers.labels)
    logits = torch.as_tensor(answers.member_logits)
    if isinstance(fitted, FittedVector):
        # A scaled classifier rounds differently: a hair below, samples at the threshold are accepted too.
        least = least_accepted(prediction(fitted.apply(logits), 1.0, None).msp, rate)
        return fitted, Acceptance(rate, least * (1 - 1e-5))
    # As predictions compute it: with another rounding, samples at the threshold would be refused.
    msp = prediction(logits, fitted.temperature, None).msp
    return fitted, Acceptance(rate, least_accepted(msp, rate))


def least_accepted(msp: Tensor, rate: float) -> float:
    """Returns the highest confidence that at least this share of the samples reaches.

    Args:
        msp: `[N]`, 0 to 1.
        rate: over 0 and up to 1.

    >>> least_accepted(torch.tensor([0.5, 0.9, 0.7, 1.0]), 0.75)  # three of four
    0.7
    """
    accepted = ceil(rate * len(msp) - 1e-9)  # 0.07 * 100 is a little more than 7
    # The shortest number that reads back as the same float32, which is what confidences are compared in.
    return float(str(msp.sort(descending=True).values[accepted - 1].numpy()))


def calibrated(
    checkpoint: Checkpoint,
    fitted: FittedTemperature | FittedVector,
    acceptance: Acceptance | None,
    samples: Samples,
    *,
    options: Mapping[str, Any],
) -> Checkpoint:
    """Returns the model with its temperature or scaled classes, and with what it accepts.

    Its history remembers the samples that these were fitted on.

    Args:
        options: those that determine the result.
    """
    seen = {"search_data": {"calibration data": sketch(samples.content_hashes())}}
    if isinstance(fitted, FittedVector):
        warm = with_scaled_classes(replace(checkpoint, temperature=None), fitted.scale, fitted.shift)
    else:
        warm = replace(checkpoint, temperature=fitted.temperature)
    recorded = with_provenance(warm, "calibrate", [checkpoint], {**options, **seen})
    return replace(recorded, acceptance=acceptance)
