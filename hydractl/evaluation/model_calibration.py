"""Fits a temperature or scaled classes and an OOD score on samples, and puts them into a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.ood import FittedOod
from hydractl.checkpoint.state_folder import StateFolder
from hydractl.data.samples import Samples
from hydractl.errors import DataError, OptionError
from hydractl.evaluation.checkpoints import NetworkLike, NetworkSystem
from hydractl.evaluation.comparison import answer_conditions
from hydractl.evaluation.networks import Networks
from hydractl.evaluation.ood_fit import Held, Wanted, fit_ood
from hydractl.evaluation.run import Answering
from hydractl.evaluation.saving import SavedAnswers
from hydractl.evaluation.sets import EvaluationData, SetKey
from hydractl.evaluation.systems import Classifier, OnBatch, Running, SetAnswers
from hydractl.metrics.checks import Logits
from hydractl.metrics.ood_choice import Choice
from hydractl.metrics.scaling import FittedTemperature, FittedVector
from hydractl.surgery.numbers import with_scaled_classes
from hydractl.surgery.provenance import with_provenance

Fit = Callable[[Logits, NDArray[np.int64]], FittedTemperature | FittedVector]
#: Opens the folder of answers that were computed under these conditions, plain JSON.
Keep = Callable[[Mapping[str, Any]], StateFolder]


@dataclass(frozen=True, eq=False)
class Fits:
    """The fits to one network.

    Attributes:
        fitted: the temperature or scales.
        ood: the OOD score with its statistics; None for a zero-shot network, whose classes may change.
        choice: how the score was chosen, if it was.
        kept: the folder of the answers, to be removed when the result is written.
    """

    fitted: FittedTemperature | FittedVector
    ood: FittedOod | None = None
    choice: Choice | None = None
    kept: StateFolder | None = None


def fit_network(
    network: NetworkLike,
    samples: Samples,
    ood_sets: Mapping[str, Samples],
    running: Running,
    *,
    fit: Fit,
    wanted: Wanted | None,
    keep: Keep | None,
    on_batch: Callable[[int], None],
) -> Fits:
    """Returns what a fit on labelled ID samples finds, and the OOD score that goes with it.

    Args:
        ood_sets: to choose the score by.
        fit: from member logits `[M,N,C]` and labels `[N]`.
        wanted: None for no OOD score.
        keep: opens the folder of the leading rank in which the answers to each finished set are kept; None for none.
        on_batch: called with the size of each batch that is answered.

    Raises:
        DataError: a sample cannot be read, labels do not match, or the samples are too few for the OOD score.
    """
    sets = {SetKey("id", samples.name): samples, **{SetKey("ood", name): one for name, one in ood_sets.items()}}
    data, system = EvaluationData(sets, running.reading.match_labels), NetworkSystem((network,))
    networks = system.load(data, running)
    features = wanted is not None and wanted.needs_features(ood_sets)
    kept: StateFolder | None = None
    answers: Answering = networks.answers
    if keep is not None:
        made_of = {**system.conditions(running), "features": features}
        conditions = partial(answer_conditions, made_of, data, networks.labels)
        kept = keep({key.path: conditions(key) for key in sets})
        answers = SavedAnswers(
            networks, kept.folder, about={}, head=None, conditions=conditions, resume=True, force=True
        )
    try:
        inside, *outside = _answers(networks, answers, features, on_batch)
        fitted = fit(*inside.to_fit_on())
        if wanted is None:
            return Fits(fitted, kept=kept)
        held = Held(inside, dict(zip(ood_sets, outside, strict=True)), networks.classifier, fitted.temperature)
        if isinstance(fitted, FittedVector):
            held = _scaled(held, fitted)
        return Fits(fitted, *fit_ood(held, wanted, running.on_note), kept=kept)
    except (DataError, OptionError):
        # The next attempt will ask for something else: nothing may be in its way.
        if kept is not None:
            kept.remove()
        raise


def _answers(networks: Networks, answers: Answering, features: bool, on_batch: OnBatch) -> Sequence[SetAnswers]:
    """Returns the answers to every set, on every rank."""
    ranks = networks.running.ranks
    if not ranks.leads:
        with ranks.following():
            networks.serve()
        found: Sequence[SetAnswers] = ranks.hear()
        ranks.reply(None)
        return found
    with ranks.leading():
        found = [answers(key, features, on_batch) for key in networks.data.sets]
        networks.dismiss()
        ranks.ask(found)
    return found


def _scaled(held: Held, fitted: FittedVector) -> Held:
    """Returns the answers of the network with scaled classes."""

    def scaled(one: SetAnswers) -> SetAnswers:
        assert one.member_logits is not None
        return replace(one, member_logits=fitted.apply(one.member_logits))

    assert held.classifier is not None
    scale, shift = (torch.tensor(values, dtype=torch.float64) for values in (fitted.scale, fitted.shift))
    classifier = Classifier(held.classifier.weight * scale[:, None], held.classifier.bias * scale + shift)
    outside = {name: scaled(one) for name, one in held.outside.items()}
    return replace(held, inside=scaled(held.inside), outside=outside, classifier=classifier)


def calibrated(
    checkpoint: Checkpoint,
    found: Fits,
    samples: Samples,
    ood_sets: Mapping[str, Samples],
    *,
    options: Mapping[str, Any],
) -> Checkpoint:
    """Returns the model with its temperature or scaled classes, and with its OOD score.

    Its history remembers the samples that these were fitted on.

    Args:
        options: those that determine the result.
    """
    used = {"calibration data": samples, **{f"calibration OOD data {name}": one for name, one in ood_sets.items()}}
    seen = {"search_data": {name: one.sketch() for name, one in used.items()}}
    if isinstance(found.fitted, FittedVector):
        warm = with_scaled_classes(replace(checkpoint, temperature=None), found.fitted.scale, found.fitted.shift)
    else:
        warm = replace(checkpoint, temperature=found.fitted.temperature)
    recorded = with_provenance(warm, "calibrate", [checkpoint], {**options, **seen})
    return replace(recorded, ood=found.ood)
