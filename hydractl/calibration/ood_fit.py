"""Fits what tells OOD for one network: the statistics of a score, quantiles of ID samples, and the choice of score."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import binomtest

from hydractl.calibration.promises import (
    Recalled,
    WantedPromises,
    fit_recall,
    fit_sets,
    fit_sure,
    measure_recall,
)
from hydractl.checkpoint.calibration import MOST_QUANTILES, Baseline, FittedOod, OodFit, PromisedRecall, PromisedSets
from hydractl.checkpoint.tensors import in_memory
from hydractl.errors import DataError
from hydractl.metrics.arrays import BoolArray, FloatArray, IntArray
from hydractl.metrics.bootstrap import Choice, choose_score
from hydractl.ood.fit import Fitting, totals
from hydractl.ood.ood_scores import BASELINE, DEFAULT, OOD_SCORES, find_ood_score
from hydractl.ood.score import PROFILE, QUANTILES, OodScore, Reads, flagged, typicality
from hydractl.tasks.task import Answers

AUTO = "auto"
PARTS = 5  # of the samples of several labels, each judged by thresholds of the others
#: How sure a broken promise must be before it is an error: one in a thousand files that keep it would be refused.
BROKEN, SHOWN = 0.999, 0.95


@dataclass(frozen=True)
class Wanted:
    """The OOD score to fit."""

    score: str  # a name of `OOD_SCORES`, or `auto`
    accept: float  # the share of ID samples that should not be flagged
    promises: WantedPromises = WantedPromises()
    fixed: bool = True  # whether the classes are; otherwise only what reads no classes is fitted

    @property
    def reads(self) -> Reads:
        """The parts of the network's answers that have to be collected."""
        return "layers" if self.score == AUTO else find_ood_score(self.score).reads


@dataclass(frozen=True)
class Accepted:
    """Counts the ID samples that are not flagged by fits that do not know them."""

    samples: int
    kept: int

    @property
    def share(self) -> float:
        """The share of them, 0..1."""
        return self.kept / self.samples

    def interval(self, level: float = SHOWN) -> tuple[float, float]:
        """Returns the bounds of the share by Clopper & Pearson (1934)."""
        low, high = binomtest(self.kept, self.samples).proportion_ci(level, "exact")
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{100 * self.share:.1f} % (95 % {100 * low:.1f} to {100 * high:.1f})"


@dataclass(frozen=True, eq=False)
class FoundOod:
    """The score as a file stores it, and how it was found.

    Attributes:
        choice: what it and other scores do on the OOD sets, if there are some.
        accepted: what share of the ID samples it accepts, of those that chose nothing of it.
        shift: of each set of shifted data, the share that is flagged without and with taking it in.
        sets: the promise of prediction sets; None if none was wanted.
        recall: that of recall, likewise.
        recalled: what that does on the samples it was fitted on.
    """

    fitted: FittedOod
    choice: Choice | None
    accepted: Accepted
    shift: Mapping[str, tuple[float, float]]
    sets: PromisedSets | None = None
    recall: PromisedRecall | None = None
    recalled: Recalled | None = None


@dataclass(frozen=True, eq=False)
class Held:
    """The answers of one network to the samples of calibration."""

    inside: Answers  # to ID samples
    outside: Mapping[str, Answers]  # to OOD samples by the name of their set
    shifted: Mapping[str, Answers]  # to samples that are other than the ID samples and still welcome

    @property
    def temperature(self) -> float:
        """The number that divides logits."""
        return self.inside.calibration.divisor

    def change(self, changed: Callable[[Answers], Answers]) -> "Held":
        """Returns the same of changed answers."""
        ood, shifted = ({name: changed(part) for name, part in sets.items()} for sets in (self.outside, self.shifted))
        return replace(self, inside=changed(self.inside), outside=ood, shifted=shifted)


@dataclass(frozen=True, eq=False)
class _Fit:
    """One score, and the scores `[...,n]` of ID, shifted and OOD samples by fits that do not know them."""

    fitting: Fitting
    inside: FloatArray
    shifted: Mapping[str, FloatArray]
    outside: Mapping[str, FloatArray]

    @property
    def welcome(self) -> FloatArray:
        """The scores of ID and shifted samples, `[...,n]`."""
        return np.concatenate([self.inside, *self.shifted.values()], -1)


def fit_ood(held: Held, request: Wanted, on_note: Callable[[str], None]) -> FoundOod:
    """Returns the fitted score and, with OOD sets, the table it was chosen by.

    Statistics are fitted on all samples. The quantiles come from folds: each sample is scored by a fit on the others,
    so that of exchangeable ID samples no more than 1 - `accept` are flagged. Shifted samples join the quantiles.

    Raises:
        DataError: the samples are too few for the score, lack what it needs, or it does not keep its promise.
    """
    choice = None
    if held.outside:
        result, choice = _measured(held, request, on_note)
    else:
        result = _fit(find_ood_score(DEFAULT if request.score == AUTO else request.score), held, request)
    row, state = result.fitting.row, result.fitting.whole
    tensors = {name: _halved(tensor) if name in row.half else tensor.float() for name, tensor in state.items()}
    tensors[QUANTILES] = _ascending(thinned(totals(result.welcome)))
    if row.parts is not None:
        tensors[PROFILE] = _ascending(np.stack([thinned(layer) for layer in result.welcome[:-1]]))
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise DataError(f"the OOD score {row.name} has no finite fit to these samples: give samples that differ more")
    accepted = _accepted(result, held, request.accept)
    fit = OodFit(row.name, accepted.samples, request.accept)
    sets = None
    if held.inside.truth is not None and (request.fixed or held.inside.places is not None):
        inside, promises = held.inside, request.promises
        sure, sets = fit_sure(inside, promises), fit_sets(inside, promises)
        fit = replace(fit, accuracy=promises.accuracy)
        if request.fixed:
            counts = np.bincount(held.inside.truth, minlength=len(inside.names))
            right = inside.mean_p.argmax(-1) == held.inside.truth
            fit = replace(fit, baseline=_baseline(right, inside.mean_p.max(-1), counts))
        if sure is not None:
            fit = replace(fit, confidences=sure) if promises.by_class else replace(fit, confidence=sure[0])
    recall = None if held.inside.truth is None else fit_recall(held.inside, request.promises)
    answers = replace(held.inside, calibration=replace(held.inside.calibration, recall=recall))
    if answers.calibration.thresholds is not None and answers.truth is not None:
        table = answers.task.table(answers)
        by_score = request.promises.accuracy is None and recall is None
        right = _right_when_new(answers) if by_score else table.required_outcomes().correct
        baseline = _baseline(right, table.msp, table.prediction.sum(0))
        fit = replace(fit, accuracy=request.promises.accuracy, baseline=baseline)
    fitted = FittedOod(fit, {name: in_memory(tensor) for name, tensor in tensors.items()})
    shift, recalled = _shift(result, request.accept), measure_recall(answers)
    return FoundOod(fitted, choice, accepted, shift, sets=sets, recall=recall, recalled=recalled)


def _halved(whitening: torch.Tensor) -> torch.Tensor:
    """Returns what divides vectors of length 1 in float16, or in float32 where they hardly differ.

    It is infinite where the samples differ by no more than float32 rounds such vectors.
    """
    half, least = whitening.half(), torch.finfo(torch.float32).eps
    if half.isfinite().all():
        return half
    return torch.where(whitening.abs() < 1 / least, whitening, torch.inf).float()


def _ascending(values: FloatArray) -> torch.Tensor:
    return torch.from_numpy(values).float()


def _accepted(fit: _Fit, held: Held, accept: float) -> Accepted:
    """Returns the share of ID samples that fits and quantiles accept which do not know them.

    Raises:
        DataError: it is not the share that is promised, beyond all chance.
    """
    count = fit.fitting.inside.samples
    shifted = [answers.to_score() for answers in held.shifted.values()]
    kept = Accepted(count, fit.fitting.accepted(accept, shifted))
    low, high = kept.interval(BROKEN)
    if not fit.shifted and not low <= accept <= high:
        flags = "flags too many inputs" if kept.share < accept else "would hardly flag anything"
        raise DataError(
            f"the OOD score {fit.fitting.row.name} {flags}: it accepts {kept} of {count} held-out calibration samples, "
            f"not the promised {100 * accept:g} %: give more data, or choose another `ood_score`"
        )
    return kept


def _shift(fit: _Fit, accept: float) -> dict[str, tuple[float, float]]:
    """Returns the flagged shares of shifted samples by quantiles of ID samples alone, and with them."""

    def share(scores: FloatArray, usual: FloatArray) -> float:
        typical = typicality(torch.from_numpy(totals(scores)), torch.from_numpy(np.sort(totals(usual))))
        return float(flagged(typical, accept).double().mean())

    return {name: (share(scores, fit.inside), share(scores, fit.welcome)) for name, scores in fit.shifted.items()}


def _right_when_new(answers: Answers) -> BoolArray:
    """Returns whether each set of labels is right by thresholds that were fitted without its part of the samples."""
    part = np.random.default_rng(0).permutation(len(answers)) % PARTS
    right, truth = np.zeros(len(answers), dtype=bool), answers.labelled[1]
    for number in np.unique(part):
        others, new = (
            replace(answers, member_logits=answers.logits[:, mask], truth=truth[mask], ood_score=None, typicality=None)
            for mask in (part != number, part == number)
        )
        fitted = answers.task.fit(others).calibration(answers.calibration)
        right[part == number] = answers.task.table(replace(new, calibration=fitted)).required_outcomes().correct
    return right


def _baseline(correct: BoolArray, msp: FloatArray, counts: IntArray) -> Baseline:
    """Returns the accuracy, confidence and class shares on the calibration samples, as `predict` finds them.

    Args:
        correct: `[N]`, whether an answer is right.
        msp: `[N]`.
        counts: `[C]`, how many samples each class has.
    """
    right, confidence = int(correct.sum()), np.sort(msp.astype(np.float64))
    threshold = float(confidence[-right]) if right else 1.0
    return Baseline(
        samples=len(correct),
        accuracy=right / len(correct),
        confidence=float(confidence.mean()),
        threshold=threshold,
        labels=tuple(counts.tolist()),
        above=float((confidence >= threshold).mean()),
    )


def _measured(held: Held, request: Wanted, on_note: Callable[[str], None]) -> tuple[_Fit, Choice]:
    """Returns the fit that is named, or chosen, and its detection of the OOD sets beside that of the other scores."""
    fits: dict[str, _Fit] = {}
    score = None if request.score == AUTO else request.score
    if not request.fixed:
        score = DEFAULT  # others depend on classes, which may change
    for row in OOD_SCORES:
        if not _tried(row, held, request, score):
            continue
        try:
            fits[row.name] = _fit(row, held, request)
        except DataError as error:
            if score:
                raise
            on_note(f"OOD score {row.name} was skipped: {error}")
    id_scores = {name: totals(fit.welcome) for name, fit in fits.items()}
    ood_scores = {name: {of: totals(layers) for of, layers in fit.outside.items()} for name, fit in fits.items()}
    choice = choose_score(id_scores, ood_scores, fixed=score)
    return fits[choice.score], choice


def _tried(row: OodScore, held: Held, request: Wanted, score: str | None) -> bool:
    """Returns whether a score has a part in the choice: MSP always, others where the answers have what they take."""
    if score is not None:
        return row.name in (BASELINE, score)
    assert held.inside.member_logits is not None
    alone = len(held.inside.member_logits) == 1 and row.name == "mutual-information"  # one member agrees with itself
    return not alone and not (row.labelled and held.inside.truth is None)


def _fit(row: OodScore, held: Held, request: Wanted) -> _Fit:
    fitting = Fitting(row, held.inside.to_score(), held.temperature)

    def scored(sets: Mapping[str, Answers]) -> dict[str, FloatArray]:
        return {name: fitting.scores(fitting.whole, answers.to_score()) for name, answers in sets.items()}

    return _Fit(fitting, fitting.held_out(), scored(held.shifted), scored(held.outside))


def thinned(scores: FloatArray, most: int = MOST_QUANTILES) -> FloatArray:
    """Returns ascending scores, thinned to `most` evenly spaced ranks k (N + 1) / (most + 1), rounded up.

    Rounding up keeps the promise of typicality: a sample is never flagged because of scores that were left out.

    >>> thinned(np.arange(9.0), 4).tolist()
    [1.0, 3.0, 5.0, 7.0]
    """
    ordered = np.sort(scores)
    if len(ordered) <= most:
        return ordered
    ranks = -(-np.arange(1, most + 1) * (len(ordered) + 1) // (most + 1))
    return np.asarray(ordered[ranks - 1])
