"""One system over the data of an evaluation: answers stream through, a few numbers per sample stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from hydractl.checkpoint.ood import QUANTILES, OodFit
from hydractl.errors import DataError, OptionError
from hydractl.evaluation.sets import SetKey
from hydractl.evaluation.settings import Conformal, Settings
from hydractl.evaluation.systems import AnsweredBatch, Classifier, Predictor
from hydractl.metrics.checks import BoolArray, FloatArray, IntArray, Logits
from hydractl.metrics.conformal import PredictionSets, conformal_threshold, nonconformity, prediction_sets
from hydractl.metrics.feature_scores import MemberSamples, score_chunks, too_few
from hydractl.metrics.ood_scores import BASELINE, Answers, OodScore, Scorer, find_ood_score, fit_scorer
from hydractl.metrics.prediction_table import PredictionTable, in_order, tabulate
from hydractl.metrics.scaling import FittedTemperature, fit_temperature
from hydractl.model.ood_head import OodHead, typicality

OnBatch = Callable[[int], None]
#: Called with each set as it starts; returns what to call with the size of each finished batch.
OnSet = Callable[[SetKey], AbstractContextManager[OnBatch]]
#: Yields the answers to a set, with features if that is True.
Answering = Callable[[SetKey, bool], Iterator[AnsweredBatch]]
#: Calibration samples whose features are kept for an OOD score, 150 MB a member where they are 768 wide.
MOST_FEATURES = 50_000


@dataclass(frozen=True, eq=False)
class Calibration:
    """Fits before the evaluation: temperature and threshold of prediction sets."""

    temperature: float
    fitted: FittedTemperature | None = None
    threshold: float | None = None


@dataclass(frozen=True, eq=False)
class SystemPredictions:
    """Per-sample results of one system on every set.

    Attributes:
        tables: of the sets that logits are known of.
        scores: `[N]` of each set, higher = more OOD.
        sets: prediction sets of the in-distribution data.
        correct: `[N]` booleans of the labelled sets of which confidences are all that is known.
        confident: whether scores are minus the system's own confidence.
        own: the score that the system's file brings, if it is scored by it.
        flagged: the share of the ID samples that this score flags; None without one.
    """

    calibration: Calibration
    tables: Mapping[SetKey, PredictionTable]
    scores: Mapping[SetKey, FloatArray]
    sets: PredictionSets | None = None
    correct: Mapping[SetKey, BoolArray] = field(default_factory=dict)
    confident: bool = False
    own: OodFit | None = None
    flagged: float | None = None

    def right(self, key: SetKey) -> BoolArray:
        """Returns whether each prediction of a set is right, `[N]`.

        Raises:
            DataError: the samples have no labels.
        """
        return self.correct[key] if key in self.correct else self.tables[key].labelled().correct

    def confidence(self, key: SetKey) -> FloatArray:
        """Returns the system's confidence, `[N]`: its own if it has one, else its MSP."""
        return -self.scores[key] if self.confident else self.tables[key].msp


def predict_sets(
    predictor: Predictor,
    keys: Sequence[SetKey],
    settings: Settings | None = None,
    *,
    on_set: OnSet | None = None,
    answers: Answering | None = None,
) -> SystemPredictions:
    """Returns the per-sample quantities of a system on every set; memory does not grow with the number of classes.

    Args:
        keys: the sets; the one for calibration comes first whatever its place here.
        settings: what the numbers mean, our own by default.
        answers: yields a set's answers, by default the predictor's own.

    Raises:
        DataError: a set cannot be read, or logits or labels make no sense.
        OptionError: something is to be fitted and there is no calibration set.
    """
    chosen, watch = settings or Settings(), on_set or _unwatched
    answers = answers or predictor.answers
    head = predictor.ood_head if chosen.own_scores and not predictor.confident else None
    score = score_of(predictor, chosen, head)
    settled, scorer = _calibrate(predictor, keys, chosen, None if head else score, watch=watch, answers=answers)
    if head is not None:
        scorer = partial(_by_head, head)
    found: dict[SetKey, _Reduced] = {}
    for key in keys:
        if key.role == "calibration":
            continue
        with watch(key) as advance:
            answered = answers(key, score.needs_features)
            conformal = chosen.conformal if key.role == "id" else None
            found[key] = _reduce(answered, settled, scorer, conformal=conformal, on_batch=advance)
    inside = next((part.scores for key, part in found.items() if key.role == "id"), None)
    return SystemPredictions(
        settled,
        {key: part.table for key, part in found.items() if part.table is not None},
        {key: part.scores for key, part in found.items()},
        sets=next((part.sets for part in found.values() if part.sets is not None), None),
        correct={key: part.correct for key, part in found.items() if part.correct is not None},
        confident=predictor.confident,
        own=None if head is None else head.fit,
        flagged=None if head is None or inside is None else _flagged(head, inside),
    )


def score_of(predictor: Predictor, settings: Settings, head: OodHead | None) -> OodScore:
    """Returns the score to request features for; a system with its own confidence needs none.

    Args:
        head: the system's own score, if it counts.
    """
    if head is not None:
        return find_ood_score(head.fit.score)
    return find_ood_score(BASELINE) if predictor.confident else settings.score


def _by_head(head: OodHead, answers: Answers) -> FloatArray:
    state = {name: tensor.cpu().double() for name, tensor in head.named_buffers()}
    return score_chunks(head.fit.score, state, answers.features, answers.member_logits, temperature=answers.temperature)


def _flagged(head: OodHead, scores: FloatArray) -> float:
    quantiles = head.get_buffer(QUANTILES).cpu().double()
    return float(head.flags(typicality(torch.from_numpy(scores), quantiles)).double().mean())


def _calibrate(
    predictor: Predictor,
    keys: Sequence[SetKey],
    settings: Settings,
    score: OodScore | None,
    *,
    watch: OnSet,
    answers: Answering,
) -> tuple[Calibration, Scorer]:
    """Returns what is fitted before the evaluation, and how samples are scored; without a score, by the MSP."""
    conformal, baseline = settings.conformal, find_ood_score(BASELINE).of_answers
    assert baseline is not None
    wanted = settings.wanted_temperature
    given = predictor.temperature if wanted is None or wanted == "fit" else wanted
    wanting = list(settings.fits(score))
    if not wanting:
        return Calibration(given), (score and score.of_answers) or baseline
    key = next((key for key in keys if key.role == "calibration"), None)
    if key is None:
        needs = "needs" if len(wanting) == 1 else "need"
        raise OptionError(f"{' and '.join(wanting)} {needs} held-out labelled data: pass `calib_data`")
    with watch(key) as advance:
        features = score is not None and score.needs_features
        held = collect(answers(key, features), advance, predictor.samples(key))
    fitted = fit_temperature(held.member_logits, held.labels) if settings.temperature == "fit" else None
    temperature = fitted.temperature if fitted else given
    scorer = (score and score.of_answers) or baseline
    if score is not None and score.needs_features:
        scorer = fit_scorer(score, member_samples(held, predictor.classifier))
    if conformal is None:
        return Calibration(temperature, fitted), scorer
    lack = nonconformity(held.member_logits, held.labels, conformal.name, temperature)
    return Calibration(temperature, fitted, conformal_threshold(lack, conformal.coverage)), scorer


@dataclass(frozen=True, eq=False)
class Collected:
    """All answers of a calibration set, in order.

    Attributes:
        member_logits: `[M,N,C]`.
        labels: `[N]`.
        features: `[M,n,D']` of the samples at `kept` `[n]`, at most MOST_FEATURES of them; None unless requested.
    """

    member_logits: Logits
    labels: IntArray
    kept: IntArray
    features: Logits | None = None


def collect(batches: Iterator[AnsweredBatch], on_batch: OnBatch, total: int, labelled: bool = True) -> Collected:
    """Collects the answers to a calibration set; keeps the features of at most MOST_FEATURES samples, evenly spread.

    Args:
        total: N, how many samples there will be.
        labelled: whether labels must be there; the labels of OOD samples are all 0.

    Raises:
        DataError: no samples, or no labels.
    """
    logits, labels, positions, features, places = [], [], [], [], []
    for batch in batches:
        at = batch.positions.numpy()
        logits.append(batch.logits().numpy())
        labels.append(_labels(batch) if labelled else np.zeros(len(at), dtype=np.int64))
        positions.append(at)
        if batch.features is not None:
            chosen = _spread(at, total, MOST_FEATURES)
            features.append(batch.features.numpy()[:, chosen])
            places.append(at[chosen])
        on_batch(len(at))
    if not logits:
        raise DataError("the calibration data holds no samples")
    order = np.argsort(np.concatenate(positions))
    member_logits, ordered = np.concatenate(logits, axis=1)[:, order], np.concatenate(labels)[order]
    if not features:
        return Collected(member_logits, ordered, np.empty(0, dtype=np.int64))
    kept = np.concatenate(places)
    order = np.argsort(kept)
    return Collected(member_logits, ordered, kept[order], np.concatenate(features, axis=1)[:, order])


def _spread(positions: IntArray, total: int, most: int) -> IntArray:
    """Returns the places of those positions that belong to an even spread of `most` over `total`."""
    if total <= most:
        return np.arange(len(positions))
    return np.flatnonzero((positions + 1) * most // total > positions * most // total)


def member_samples(
    held: Collected, classifier: Classifier | None, shrink: bool | None = None
) -> Iterator[MemberSamples]:
    """Yields the calibration samples as each member sees them, in float64 for one member at a time.

    Args:
        shrink: whether covariances are shrunk. Default: where the samples are too few.
    """
    assert held.features is not None
    if shrink is None:
        shrink = too_few(held.features.shape[1], held.member_logits.shape[-1], held.features.shape[2])
    for member, features in enumerate(held.features):
        affine = None
        if classifier is not None:
            affine = classifier.weight[member].double().numpy(), classifier.bias[member].double().numpy()
        logits = held.member_logits[member, held.kept].astype(np.float64)
        yield MemberSamples(features.astype(np.float64), logits, held.labels[held.kept], affine, shrink=shrink)


@dataclass(frozen=True, eq=False)
class _Reduced:
    """Per-sample results on a batch or on a whole set."""

    table: PredictionTable | None
    scores: FloatArray
    correct: BoolArray | None
    sets: PredictionSets | None


def _reduce(
    batches: Iterator[AnsweredBatch],
    settled: Calibration,
    scorer: Scorer,
    conformal: Conformal | None,
    on_batch: OnBatch,
) -> _Reduced:
    parts, positions = [], []
    for batch in batches:
        table = sets = None
        if batch.member_logits is not None:
            labels = None if batch.labels is None else batch.labels.numpy()
            table = tabulate(batch.member_logits.numpy(), labels, settled.temperature)
        if conformal is not None and settled.threshold is not None:
            sets = prediction_sets(
                batch.logits().numpy(),
                _labels(batch),
                settled.threshold,
                conformal.name,
                temperature=settled.temperature,
            )
        correct = None if batch.correct is None else batch.correct.numpy()
        parts.append(_Reduced(table, _score(batch, table, settled.temperature, scorer), correct, sets))
        positions.append(batch.positions.numpy())
        on_batch(len(batch.positions))
    return in_order(parts, np.concatenate(positions) if positions else np.empty(0, np.int64))


def _score(batch: AnsweredBatch, table: PredictionTable | None, temperature: float, scorer: Scorer) -> FloatArray:
    if batch.confidence is not None:
        return -batch.confidence.double().numpy()
    assert table is not None
    features = None if batch.features is None else batch.features.numpy()
    return scorer(Answers(table, batch.logits().numpy(), temperature, features))


def _labels(batch: AnsweredBatch) -> IntArray:
    if batch.labels is None:
        raise DataError("the calibration data has no labels")
    return batch.labels.numpy()


def _unwatched(_key: SetKey) -> AbstractContextManager[OnBatch]:
    return nullcontext(lambda _samples: None)
