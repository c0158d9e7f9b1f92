"""Fits a temperature and an OOD score on samples, and puts them into a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from hydractl.calibration.ood_fit import FoundOod, Held, Wanted, fit_ood
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.output import StateFolder
from hydractl.data.labels import read_classes, unnamed
from hydractl.data.number_labels import match_to_task
from hydractl.data.reading import Reading
from hydractl.data.samples import Samples, missing_classes
from hydractl.errors import DataError, OptionError
from hydractl.metrics.classification import is_chance, too_few_right
from hydractl.metrics.scaling import FittedTemperature
from hydractl.ood.score import Reads
from hydractl.surgery.provenance import exposed_to, used_samples, with_provenance
from hydractl.systems.networks import NetworkLike, NetworkSystem
from hydractl.systems.saved import SavedAnswers, answer_conditions
from hydractl.systems.system import Answering, EvaluationData, OnBatch, Running, SetKey
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers

NO_GAIN = 1e-3  # of the NLL of guesses; a fit that gains less has found nothing
NO_CLASS = "has no class that a model that embeds could be sure of"
Fit = Callable[[Answers], FittedTemperature]
#: Opens the folder of answers that were computed under these conditions, plain JSON.
Keep = Callable[[Mapping[str, Any]], StateFolder]


@dataclass(frozen=True, eq=False)
class CalibrationData:
    """The samples that a network is calibrated on.

    Attributes:
        inside: ID samples; with labels, if a temperature is to be fitted.
        outside: OOD sets by name, to choose the score by.
        shifted: sets by name of samples that are other than the ID samples and still welcome.
    """

    inside: Samples
    outside: Mapping[str, Samples]
    shifted: Mapping[str, Samples]

    @property
    def sets(self) -> dict[SetKey, Samples]:
        """The sets by their keys, the ID samples first."""
        id_set = SetKey("id", self.inside.name, labelled=self.inside.labels is not None)
        shifted = {SetKey("shift", name, severity=1, labelled=False): samples for name, samples in self.shifted.items()}
        return {
            id_set: self.inside,
            **shifted,
            **{SetKey("ood", name): samples for name, samples in self.outside.items()},
        }

    @property
    def used(self) -> dict[str, Samples]:
        """All samples by their use; an evaluation refuses them."""
        shifted = {f"calibration shift data {name}": samples for name, samples in self.shifted.items()}
        ood = {f"calibration OOD data {name}": samples for name, samples in self.outside.items()}
        return {"calibration data": self.inside, **shifted, **ood}


@dataclass(frozen=True, eq=False)
class Fits:
    """The fits to one network.

    Attributes:
        fitted: the temperature or intervals; None without labels.
        ood: the OOD score, and how it was found.
        kept: the folder of the answers, to be removed when the result is written.
    """

    fitted: FittedTemperature | None
    ood: FoundOod
    kept: StateFolder | None = None


def fit_network(
    network: NetworkLike,
    material: CalibrationData,
    running: Running,
    *,
    fit: Fit,
    request: Wanted,
    keep: Keep | None,
    on_batch: Callable[[int], None],
) -> Fits:
    """Returns what a fit on ID samples finds, and the OOD score that goes with it.

    Args:
        fit: from labelled answers; not called for samples without labels.
        keep: opens the folder of the leading rank in which the answers to each finished set are kept; None for none.
        on_batch: called with the size of each batch that is answered.

    Raises:
        DataError: a sample cannot be read, labels do not match, or the samples are too few for the OOD score.
    """
    sets = material.sets
    data = EvaluationData(sets, running.reading.match_labels)
    networks = NetworkSystem((network,), data=data, running=running)
    kept: StateFolder | None = None
    answers: Answering = networks.answers
    if keep is not None:
        made_of = {**networks.conditions(running), "reads": request.reads}
        conditions = partial(answer_conditions, made_of, data, networks.labels)
        kept = keep({key.path: conditions(key) for key in sets})
        answers = SavedAnswers(
            networks, kept.folder, about={}, head=None, conditions=conditions, resume=True, force=True
        )
    try:
        id_answers, *others = _answers(networks, answers, request.reads, on_batch)
        shifted = dict(zip(material.shifted, others, strict=False))
        ood_answers = dict(zip(material.outside, others[len(shifted) :], strict=True))
        held = Held(id_answers, ood_answers, shifted)
        return replace(fit_answers(held, fit, request, running.on_note), kept=kept)
    except (DataError, OptionError):
        # The next attempt will ask for something else: nothing may be in its way.
        if kept is not None:
            kept.remove()
        raise


def labelled_for(checkpoint: Checkpoint, samples: Samples) -> Samples:
    """Returns the samples with labels that the answers of a network can be fitted to.

    Raises:
        DataError: a number is missing, or is none.
    """
    task = find_task(checkpoint.spec.task)
    if task.taught_only:
        return replace(samples, labels=None, label_names=None, label_problem=NO_CLASS)
    if task.promises == ("interval",) and samples.label_column is not None:
        return match_to_task(samples, task, checkpoint.labels or unnamed(checkpoint.spec.classes))
    return samples


def unseen_sets(checkpoint: Checkpoint, ood: Mapping[str, Samples]) -> dict[str, Samples]:
    """Returns the OOD sets whose kind, a set of the same name or samples of them, no network's training saw.

    Outlier exposure makes a network unsure of what it saw, so scores of its answers look better there than on other
    OOD data.
    """
    histories = [checkpoint.provenance]
    names = set(exposed_to(checkpoint.provenance))
    return {
        name: samples
        for name, samples in ood.items()
        if name not in names and "outliers" not in used_samples(checkpoint.name, histories, samples)
    }


def missing_to_fit(checkpoint: Checkpoint, samples: Samples, reading: Reading) -> str | None:
    """Returns a warning that names classes of a network without a sample; see `missing_classes`.

    Raises:
        DataError: labels do not match.
    """
    task = find_task(checkpoint.spec.task)
    if samples.labels is None or task.taught_only:
        return None
    named = samples.label_names if reading.classes is None else read_classes(reading.classes)
    names = checkpoint.labels or unnamed(checkpoint.spec.classes) or named
    return None if names is None else missing_classes(match_to_task(samples, task, names, reading.match_labels))


def fit_answers(held: Held, fit: Fit, request: Wanted, on_note: Callable[[str], None]) -> Fits:
    """Returns the fits to answers; a fitted temperature takes the place of theirs.

    Raises:
        DataError: the answers are no better than guesses, or the samples are too few for the OOD score.
    """
    fitted = None if held.inside.truth is None else fit(held.inside)
    if fitted is not None:
        _refuse_guesses(fitted, held.inside)
        held = held.change(lambda answers: replace(answers, calibration=fitted.calibration(answers.calibration)))
    return Fits(fitted, fit_ood(held, request, on_note))


def _refuse_guesses(fitted: FittedTemperature, answers: Answers) -> None:
    """Raises DataError if answers tell as little of labels as guesses do; answers in numbers are never refused."""
    chosen = answers.task.choices(answers)
    if chosen is None:
        return
    right, choices = chosen
    count, size, worst = int(right.sum()), right.size, float(np.log(choices))
    one_class = right.ndim == 1
    useless = fitted.nll_after >= (1 - NO_GAIN) * worst or (one_class and is_chance(count, size, choices))
    if useless and too_few_right(count, size, choices):
        raise DataError(
            f"the answers do not predict the labels of the calibration data: {count} of {size} are right (by chance "
            f"{size / choices:.0f}), NLL {fitted.nll_after:.4f} after the fit (by chance {worst:.4f}): the labels are "
            "probably in another order than the model's classes, or of other classes: match them by name, or give data "
            "of the model's classes"
        )


def _answers(networks: NetworkSystem, answers: Answering, reads: Reads, on_batch: OnBatch) -> Sequence[Answers]:
    """Returns the answers to every set, on every rank."""
    assert networks.data is not None and networks.running is not None
    ranks = networks.running.ranks
    if not ranks.leads:
        with ranks.following():
            networks.serve()
        all_answers: Sequence[Answers] = ranks.hear()
        ranks.reply(None)
        return all_answers
    with ranks.leading():
        all_answers = [answers(key, reads, on_batch) for key in networks.data.sets]
        networks.dismiss()
        ranks.ask(all_answers)
    return all_answers


def calibrated(
    checkpoint: Checkpoint, fits: Fits, material: CalibrationData, *, options: Mapping[str, Any]
) -> Checkpoint:
    """Returns the model with its temperature and its OOD score.

    Its history remembers the samples that these were fitted on.

    Args:
        options: those that determine the result.
    """
    seen = {"search_data": {name: samples.sketch() for name, samples in material.used.items()}}
    fitted, calibration = fits.fitted, checkpoint.calibration
    if fitted is not None:
        calibration = fitted.calibration(calibration)
    calibration = replace(calibration, ood=fits.ood.fitted, sets=fits.ood.sets, recall=fits.ood.recall)
    return replace(with_provenance(checkpoint, "calibrate", [checkpoint], {**options, **seen}), calibration=calibration)
