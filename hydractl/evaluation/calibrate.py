"""Calibration of a model: the one temperature that its file carries from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.samples import Samples
from hydractl.data.seen import sketch
from hydractl.evaluation.checkpoints import NetworkLike, NetworkSpec
from hydractl.evaluation.run import collect
from hydractl.evaluation.sets import EvaluationData, SetKey
from hydractl.evaluation.systems import Running
from hydractl.surgery.provenance import with_provenance
from hydractl.uncertainty.temperature import FittedTemperature, fit_temperature


def fit_network(
    network: NetworkLike,
    samples: Samples,
    match: Literal["name", "index"],
    running: Running,
    on_batch: Callable[[int], None],
) -> FittedTemperature:
    """The temperature of least negative log-likelihood on labelled ID samples.

    Args:
        match: how their labels are matched to the model's.
        on_batch: told the size of each batch that is answered.

    Raises:
        DataError: a sample cannot be read, or labels do not match.
    """
    key = SetKey("id", samples.name)
    networks = NetworkSpec((network,)).open().load(EvaluationData({key: samples}, match), running)
    answers = collect(networks.answers(key), on_batch, len(samples))
    return fit_temperature(answers.member_logits, answers.labels)


def with_temperature(
    checkpoint: Checkpoint, temperature: float, samples: Samples, options: Mapping[str, Any]
) -> Checkpoint:
    """The model with a temperature, which its predictions use; its history remembers the samples it was fitted on.

    Args:
        options: those that determine the result.
    """
    seen = {"search_data": {"calibration data": sketch(samples.content_hashes())}}
    warm = replace(checkpoint, temperature=temperature)
    return with_provenance(warm, "calibrate", [checkpoint], {**options, **seen})
