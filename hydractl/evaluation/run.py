"""One system over the data of an evaluation: answers stream through, a few numbers per sample stay."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from hydractl.checkpoint.calibration import OodFit, PromisedSets
from hydractl.errors import DataError, OptionError
from hydractl.evaluation.answer_kinds import AnswerKind, Classes, EmbeddingTable
from hydractl.evaluation.promise_fit import LabelledAnswers, WantedPromises, fit_sets, measure_sure
from hydractl.evaluation.results import Sure
from hydractl.evaluation.set_answers import Classifier, SetAnswers
from hydractl.evaluation.sets import SetKey
from hydractl.evaluation.settings import Settings
from hydractl.evaluation.systems import OnBatch, Predictor
from hydractl.metrics.checks import BoolArray, FloatArray, IntArray
from hydractl.metrics.conformal import ConformalMetrics, prediction_sets
from hydractl.metrics.prediction_table import PredictionTable
from hydractl.metrics.scaling import FittedTemperature
from hydractl.model.ood_head import OodHead
from hydractl.ood.fit import fitted_scorer, score_samples
from hydractl.ood.ood_scores import BASELINE, DEFAULT, find_ood_score
from hydractl.ood.score import QUANTILES, OodScore, Reads, typicality

#: Called with each set as it starts; returns what to call with the size of each finished batch.
OnSet = Callable[[SetKey], AbstractContextManager[OnBatch]]
#: Returns the answers to a set, with what a score reads of them.
Answering = Callable[[SetKey, Reads, OnBatch], SetAnswers]
#: From the answers to a set, their table and the temperature to scores `[N]`.
Scorer = Callable[[SetAnswers, Any, float], FloatArray]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Fits before the evaluation, or those of a file: temperature, prediction sets, thresholds."""

    temperature: float
    fitted: FittedTemperature | None = None
    sets: PromisedSets | None = None
    kind: AnswerKind = Classes()


@dataclass(frozen=True, eq=False)
class SystemPredictions:
    """Per-sample results of one system on every set."""

    calibration: Calibration
    tables: Mapping[SetKey, Any]  # of the sets that logits are known of, as the kind of answers makes them
    scores: Mapping[SetKey, FloatArray]  # `[N]` of each set, higher = more OOD
    queries: IntArray | None = None  # `[N]` of the in-distribution data, the number of each sample's query
    sets: ConformalMetrics | None = None  # size and coverage of the prediction sets of the in-distribution data
    sure: Sure | None = None  # how the sure answers to the in-distribution data do; None at another temperature
    # `[N]` booleans of the labelled sets of which confidences are all that is known.
    correct: Mapping[SetKey, BoolArray] = field(default_factory=dict)
    confident: bool = False  # whether scores are minus the system's own confidence
    own: OodFit | None = None  # the score that the system's file brings, if it is scored by it
    flagged: float | None = None  # the share of the ID samples that this score flags; None without one

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
        return self.correct[key] if key in self.correct else self.with_msp[key].labelled().correct

    def confidence(self, key: SetKey) -> FloatArray:
        """Returns what ranks answers by confidence, `[N]`: the system's own if it has one, else its MSP."""
        return -self.scores[key] if self.confident else -self.with_msp[key].doubt


def predict_sets(
    predictor: Predictor,
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
    _check_kind(predictor, chosen)

    def answered(key: SetKey, reads: Reads) -> SetAnswers:
        with on_set(key) if on_set else nullcontext(lambda _samples: None) as advance:
            return read(key, reads, advance)

    head = predictor.ood_head if chosen.own_scores and not predictor.confident else None
    promised = None if predictor.confident else predictor.calibration.fit  # whatever score is chosen
    # A system with its own confidence needs no score, and no features.
    score = find_ood_score(BASELINE) if predictor.confident else chosen.score
    if head is not None:
        score = find_ood_score(head.fit.score)
    if score.fit is None and any(key.role == "ood" for key in keys):
        _require_confidence(predictor)
    settled, scorer = _calibrate(predictor, keys, chosen, None if head else score, answered=answered)
    reads = score.reads
    if head is not None:
        scorer = partial(_by_head, head)
        reads = "logits" if predictor.scores_itself else reads
    found: dict[SetKey, _Measured] = {}
    sets: ConformalMetrics | None = None
    sure: Sure | None = None
    for key in keys:
        if key.role != "calibration":
            one = answered(key, reads)
            found[key] = _measure(one, settled, scorer)
            if key.role == "id" and settled.sets is not None:
                sets = _measured_sets(one, settled.sets, settled.temperature, predictor.labels)
            if key.role == "id" and promised is not None and promised.least and chosen.wanted_temperature is None:
                sure = measure_sure(LabelledAnswers.of(one, settled.temperature, predictor.labels), promised)
    inside = next((part for key, part in found.items() if key.role == "id"), None)
    return SystemPredictions(
        settled,
        {key: part.table for key, part in found.items() if part.table is not None},
        {key: part.scores for key, part in found.items()},
        sets=sets,
        sure=sure,
        correct={key: part.correct for key, part in found.items() if part.correct is not None},
        confident=predictor.confident,
        own=None if head is None else head.fit,
        flagged=None if head is None or inside is None else _flagged(head, inside.scores),
    )


def _check_kind(predictor: Predictor, chosen: Settings) -> None:
    """Raises OptionError for settings that say nothing of what a system answers with."""
    if not predictor.kind.one_class:
        chosen.check_several(confident=predictor.kind.confident)


def _require_confidence(predictor: Predictor) -> None:
    """Raises OptionError for a system whose answers tell no OOD sample."""
    if not predictor.kind.confident:
        what = predictor.kind.name
        raise OptionError(
            f"`ood_data`: {what} tell no OOD sample: calibrate the model, or choose `ood_score` {DEFAULT}"
        )


def _by_head(head: OodHead, answers: SetAnswers, _table: Any, temperature: float) -> FloatArray:
    if answers.ood_score is not None:
        return answers.ood_score
    if head.row.reads == "layers":
        raise DataError("these predictions were saved without `ood_score`: save them again, or name an `ood_score`")
    state = {name: tensor.cpu().double() for name, tensor in head.named_buffers()}
    return score_samples(head.row, state, answers.to_score(), temperature)


def _flagged(head: OodHead, scores: FloatArray) -> float:
    quantiles = head.get_buffer(QUANTILES).cpu().double()
    return float(head.flags(typicality(torch.from_numpy(scores), quantiles)).double().mean())


def _calibrate(
    predictor: Predictor,
    keys: Sequence[SetKey],
    settings: Settings,
    score: OodScore | None,
    answered: Callable[[SetKey, Reads], SetAnswers],
) -> tuple[Calibration, Scorer]:
    """Returns what is fitted before the evaluation, and how samples are scored; without a score, by the MSP."""
    row = score or find_ood_score(BASELINE)
    scorer = _of_answers(row, predictor.kind) if row.fit is None else None
    wanted = settings.wanted_temperature
    temperature = predictor.temperature if wanted is None or wanted == "fit" else wanted
    wanting, settled = list(settings.fits(score)), Calibration(temperature, kind=predictor.kind)
    if not wanting:
        assert scorer is not None
        # The file's sets belong to its temperature.
        return replace(settled, sets=predictor.calibration.sets if wanted is None else None), scorer
    key = next((key for key in keys if key.role == "calibration"), None)
    if key is None:
        needs = "needs" if len(wanting) == 1 else "need"
        raise OptionError(f"{' and '.join(wanting)} {needs} held-out labelled data: name it as `calib_data`")
    held = answered(key, row.reads)
    if wanted == "fit":
        fitted = predictor.kind.fit(*held.to_fit_on())
        settled = Calibration(fitted.temperature, fitted, kind=predictor.kind.fitted(fitted))
    if scorer is None:
        scorer = _fitted(row, held, predictor.classifier)
    sets = predictor.calibration.sets if wanted is None else None
    if settings.coverage is not None:
        sets = fit_sets(
            LabelledAnswers.of(held, settled.temperature, predictor.labels), WantedPromises(sets=settings.coverage)
        )
    return replace(settled, sets=sets), scorer


def _of_answers(row: OodScore, kind: AnswerKind) -> Scorer:
    """Returns a score of logits alone."""

    def score(answers: SetAnswers, table: Any, temperature: float) -> FloatArray:
        if kind.one_class:
            return score_samples(row, {}, answers.to_score(), temperature)
        # `Settings.check_several` admits no other score here than the doubt in the answer; numbers and
        # embeddings have none, and no OOD set is compared.
        return table.doubt if isinstance(table, PredictionTable) else np.zeros(answers.samples)

    return score


def _fitted(row: OodScore, held: SetAnswers, classifier: Classifier | None) -> Scorer:
    scored = fitted_scorer(row, held.to_score(classifier))
    return lambda answers, _table, temperature: scored(answers.to_score(), temperature)


class _Measured(NamedTuple):
    """Per-sample results on a set."""

    table: Any
    scores: FloatArray
    correct: BoolArray | None


def _measured_sets(
    answers: SetAnswers, sets: PromisedSets, temperature: float, classes: Sequence[str] | None
) -> ConformalMetrics:
    known = LabelledAnswers.of(answers, temperature, classes)
    return prediction_sets(known.probabilities, known.labels, sets.least, sets.coverage, classes=known.names)


def _measure(answers: SetAnswers, settled: Calibration, scorer: Scorer) -> _Measured:
    if answers.member_logits is None:
        assert answers.confidence is not None
        return _Measured(None, -answers.confidence.astype(np.float64), answers.correct)
    table = settled.kind.table(answers, settled.temperature)
    own = answers.confidence
    scores = scorer(answers, table, settled.temperature) if own is None else -own.astype(np.float64)
    return _Measured(table, scores, answers.correct)
