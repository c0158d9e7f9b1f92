"""One system over the data of an evaluation: answers stream through, a few numbers per sample stay."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from hydractl.calibration.promises import Recalled, Sure, measure_recall, measure_sure
from hydractl.checkpoint.calibration import Calibration, OodFit
from hydractl.errors import DataError, OptionError
from hydractl.evaluation.settings import Settings
from hydractl.metrics.arrays import BoolArray, FloatArray
from hydractl.metrics.classification import ByClass, PredictionTable
from hydractl.metrics.scaling import ConformalMetrics, FittedTemperature, prediction_sets
from hydractl.model.answering import OodHead
from hydractl.ood.fit import fitted_scorer, score_samples
from hydractl.ood.ood_scores import BASELINE, DEFAULT, find_ood_score
from hydractl.ood.score import QUANTILES, OodScore, Reads, typicality
from hydractl.systems.system import Answering, OnBatch, SetKey, System
from hydractl.tasks.embeddings import EmbeddingTable
from hydractl.tasks.task import Answers, Task

#: Called with each set as it starts; returns what to call with the size of each finished batch.
OnSet = Callable[[SetKey], AbstractContextManager[OnBatch]]
#: From the answers to a set and their table to scores `[N]`.
Scorer = Callable[[Answers, Any], FloatArray]


@dataclass(frozen=True, eq=False)
class SystemPredictions:
    """Per-sample results of one system on every set."""

    task: Task
    calibration: Calibration  # what was fitted to the answers, by a file or before the evaluation
    fitted: FittedTemperature | None  # the fit before the evaluation
    tables: Mapping[SetKey, Any]  # of the sets that logits are known of, as the task makes them
    scores: Mapping[SetKey, FloatArray]  # `[N]` of each set, higher = more OOD
    sets: ConformalMetrics | None = None  # size and coverage of the prediction sets of the in-distribution data
    sure: Sure | None = None  # how the sure answers to the in-distribution data do; None at another temperature
    recall: Recalled | None = None  # how the promised recall does there; None likewise
    # `[N]` booleans of the labelled sets of which confidences are all that is known.
    correct: Mapping[SetKey, BoolArray] = field(default_factory=dict)
    own_confidence: bool = False  # whether scores are minus the system's own confidence
    own_fit: OodFit | None = None  # the score that the system's file brings, if it is scored by it
    flagged: float | None = None  # the share of the ID samples that this score flags; None without one
    by_class: ByClass | None = None  # of the in-distribution data; None without classes or logits

    @cached_property
    def with_msp(self) -> Mapping[SetKey, PredictionTable]:
        """The tables of answers that have a probability."""
        return {key: table for key, table in self.tables.items() if isinstance(table, PredictionTable)}

    @property
    def embedding(self) -> FloatArray | None:
        """The embeddings `[N,P]` of the in-distribution data; None of a system that does not embed."""
        table = next((table for key, table in self.tables.items() if key.role == "id"), None)
        return table.embeddings if isinstance(table, EmbeddingTable) else None

    def right(self, key: SetKey) -> BoolArray:
        """Returns whether each prediction of a set is right, `[N]`."""
        return self.correct[key] if key in self.correct else self.with_msp[key].required_outcomes().correct

    def confidence(self, key: SetKey) -> FloatArray:
        """Returns what ranks answers by confidence, `[N]`: the system's own if it has one, else its MSP."""
        return -self.scores[key] if self.own_confidence else -self.with_msp[key].doubt


def predict_sets(
    predictor: System,
    keys: Sequence[SetKey],
    settings: Settings | None = None,
    *,
    on_set: OnSet | None = None,
    answers: Answering | None = None,
) -> SystemPredictions:
    """Returns the per-sample quantities of a system on every set; the answers to one set are in memory at a time.

    Args:
        keys: the sets; the one for calibration comes first whatever its place here.
        settings: what the numbers mean, our own by default.
        answers: returns a set's answers, by default the predictor's own.

    Raises:
        DataError: a set cannot be read, or logits or labels make no sense.
        OptionError: something is to be fitted and there is no calibration set.
    """
    chosen, read = settings or Settings(), answers or predictor.answers
    chosen.check_task(predictor.task)

    def answered(key: SetKey, reads: Reads) -> Answers:
        with on_set(key) if on_set else nullcontext(lambda _samples: None) as advance:
            return read(key, reads, advance)

    head = predictor.ood_head if chosen.own_scores and not predictor.own_confidence else None
    score = _score(predictor, chosen, head)
    task = predictor.task
    if task.tells_ood == "nothing" and score.fit is None and any(key.role == "ood" for key in keys):
        raise OptionError(
            f"`ood_data`: {task.answers} cannot detect OOD samples: calibrate the model, or choose `ood_score` "
            f"{DEFAULT}"
        )
    calibration, fitted, scorer = _calibrate(predictor, keys, chosen, None if head else score, answered=answered)
    reads = score.reads
    if head is not None:
        scorer = partial(by_head, head)
        reads = "logits" if predictor.scores_itself else reads
    measured: dict[SetKey, _Measured] = {}
    of_id: dict[str, Any] = {}
    for key in keys:
        if key.role != "calibration":
            answers_to_set = replace(answered(key, reads), calibration=calibration)
            measured[key] = _measure(answers_to_set, scorer)
            if key.role == "id":
                of_id = _measured_promises(answers_to_set, predictor, chosen)
                # Quantiles of a score of logits belong to the file's temperature, as its promises do.
                moved = reads == "logits" and answers_to_set.ood_score is None and _moves(chosen, predictor)
                of_id |= _measured_classes(answers_to_set, measured[key], None if moved else head)
    return SystemPredictions(
        predictor.task,
        calibration,
        fitted,
        {key: part.table for key, part in measured.items() if part.table is not None},
        scores={key: part.scores for key, part in measured.items()},
        **of_id,
        correct={key: part.correct for key, part in measured.items() if part.correct is not None},
        own_confidence=predictor.own_confidence,
        own_fit=None if head is None else head.fit,
    )


def _moves(settings: Settings, predictor: System) -> bool:
    """Returns whether the temperature of the evaluation is another than the system's own."""
    return settings.wanted_temperature not in (None, predictor.calibration.divisor)


def _score(predictor: System, settings: Settings, head: OodHead | None) -> OodScore:
    """Returns the score of the system's file, or the chosen one; its own confidence needs none, and no features."""
    if predictor.own_confidence:
        return find_ood_score(BASELINE)
    return settings.score if head is None else find_ood_score(head.fit.score)


def by_head(head: OodHead, answers: Answers, _table: Any = None) -> FloatArray:
    """Returns the scores `[N]` of answers by the score that a file brings."""
    if answers.ood_score is not None:
        return answers.ood_score.astype(np.float64)
    if not head.computes:
        raise DataError("these predictions were saved without their scores: save them again, or name an `ood_score`")
    state = {name: tensor.cpu().double() for name, tensor in head.named_buffers()}
    return score_samples(head.row, state, answers.to_score(), answers.calibration.divisor)


def flags_of(head: OodHead, scores: FloatArray) -> BoolArray:
    """Returns where scores `[N]` look OOD to the file."""
    quantiles = head.get_buffer(QUANTILES).cpu().double()
    return np.asarray(head.flags(typicality(torch.from_numpy(scores), quantiles)).numpy())


def _calibrate(
    predictor: System,
    keys: Sequence[SetKey],
    settings: Settings,
    score: OodScore | None,
    answered: Callable[[SetKey, Reads], Answers],
) -> tuple[Calibration, FittedTemperature | None, Scorer]:
    """Returns what is fitted before the evaluation, and how samples are scored; without a score, by the MSP."""
    row = score or find_ood_score(BASELINE)
    scorer = _of_answers(row) if row.fit is None else None
    requested, calibration = settings.wanted_temperature, predictor.calibration
    if _moves(settings, predictor):  # the file's promises belong to its temperature
        temperature = requested if isinstance(requested, float) else calibration.temperature
        calibration = replace(calibration, temperature=temperature, thresholds=None, sets=None, recall=None)
    wanting = list(settings.fits(score))
    if not wanting:
        assert scorer is not None
        return calibration, None, scorer
    key = next((key for key in keys if key.role == "calibration"), None)
    if key is None:
        needs = "needs" if len(wanting) == 1 else "need"
        where = "save it with them as calibration.safetensors" if predictor.sets else "name it as `calib_data`"
        raise OptionError(f"{' and '.join(wanting)} {needs} held-out labelled data: {where}")
    held, fitted = answered(key, row.reads), None
    if requested == "fit":
        fitted = predictor.task.fit(held)
        calibration = fitted.calibration(calibration)
    return calibration, fitted, scorer or _fitted(row, replace(held, calibration=calibration))


def _of_answers(row: OodScore) -> Scorer:
    """Returns a score of logits alone."""

    def score(answers: Answers, table: Any) -> FloatArray:
        if answers.task.tells_ood == "scores":
            return score_samples(row, {}, answers.to_score(), answers.calibration.divisor)
        # `Settings.check_task` admits no other score here than the doubt in the answer; numbers and embeddings
        # have none, and no OOD set is compared.
        return table.doubt if isinstance(table, PredictionTable) else np.zeros(len(answers))

    return score


def _fitted(row: OodScore, held: Answers) -> Scorer:
    scored = fitted_scorer(row, held.to_score())
    return lambda answers, _table: scored(answers.to_score(), answers.calibration.divisor)


class _Measured(NamedTuple):
    """Per-sample results on a set."""

    table: Any
    scores: FloatArray
    correct: BoolArray | None


def _measured_promises(answers: Answers, predictor: System, settings: Settings) -> dict[str, Any]:
    """Returns how the prediction sets, sure answers and recall do on the in-distribution data, as fields."""
    promised, sets, sure = answers.calibration.sets, None, None
    fit = None if predictor.own_confidence else predictor.calibration.fit  # whatever score is chosen
    if fit is not None and fit.least and not _moves(settings, predictor):
        sure = measure_sure(answers, fit)
    if promised is not None:
        assert answers.truth is not None  # of the ID data
        sets = prediction_sets(answers.mean_p, answers.truth, promised.least, promised.coverage, classes=answers.names)
    return {"sets": sets, "sure": sure, "recall": measure_recall(answers)}


def _measured_classes(answers: Answers, measured: _Measured, head: OodHead | None) -> dict[str, Any]:
    """Returns the share of in-distribution samples that look OOD and the numbers of each class, as fields."""
    flags, table = None if head is None else flags_of(head, measured.scores), measured.table
    by_class = None if table is None else answers.task.class_numbers(table, answers.names, flags)
    return {"flagged": None if flags is None else float(flags.mean()), "by_class": by_class}


def _measure(answers: Answers, scorer: Scorer) -> _Measured:
    if answers.member_logits is None:
        assert answers.confidence is not None
        return _Measured(None, -answers.confidence.astype(np.float64), answers.correct)
    table = answers.task.table(answers)
    scores = scorer(answers, table) if answers.confidence is None else -answers.confidence.astype(np.float64)
    return _Measured(table, scores, answers.correct)
