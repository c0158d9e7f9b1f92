"""Fits what tells OOD for one network: the statistics of a score, quantiles of ID samples, and the choice of score."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import binomtest

from hydractl.calibration.promises import LabelledAnswers, WantedPromises, fit_sets, fit_sure
from hydractl.checkpoint.calibration import MOST_QUANTILES, Baseline, FittedOod, OodFit, PromisedSets
from hydractl.checkpoint.tensors import in_memory
from hydractl.errors import DataError
from hydractl.metrics.checks import BoolArray, FloatArray, IntArray
from hydractl.metrics.ood_choice import Choice, choose_score
from hydractl.ood.fit import Fitting, totals
from hydractl.ood.knn import NEIGHBOURS
from hydractl.ood.ood_scores import BASELINE, DEFAULT, OOD_SCORES, find_ood_score
from hydractl.ood.score import PROFILE, QUANTILES, OodScore, Reads, flagged, typicality
from hydractl.systems.system import Classifier
from hydractl.tasks.task import Answers

AUTO = "auto"
#: How sure a broken promise must be before it is an error: one in a thousand files that keep it would be refused.
BROKEN, SHOWN = 0.999, 0.95


@dataclass(frozen=True)
class Wanted:
    """The OOD score to fit."""

    score: str  # a name of `OOD_SCORES`, or `auto`
    accept: float  # the share of ID samples that should not be flagged
    bank: int  # the largest size of a bank of features, MB
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
    """

    fitted: FittedOod
    choice: Choice | None
    accepted: Accepted
    shift: Mapping[str, tuple[float, float]]
    sets: PromisedSets | None = None


@dataclass(frozen=True, eq=False)
class Held:
    """The answers of one network to the samples of calibration."""

    inside: Answers  # to ID samples
    outside: Mapping[str, Answers]  # to OOD samples by the name of their set
    classifier: Classifier | None  # of its members
    shifted: Mapping[str, Answers]  # to samples that are other than the ID samples and still welcome

    @property
    def temperature(self) -> float:
        """The number that divides logits."""
        return self.inside.calibration.divisor

    def change(self, changed: Callable[[Answers], Answers]) -> "Held":
        """Returns the same of changed answers."""
        outside, shifted = (
            {name: changed(part) for name, part in sets.items()} for sets in (self.outside, self.shifted)
        )
        return replace(self, inside=changed(self.inside), outside=outside, shifted=shifted)


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


def fit_ood(held: Held, wanted: Wanted, on_note: Callable[[str], None]) -> FoundOod:
    """Returns the fitted score and, with OOD sets, the table it was chosen by.

    Statistics are fitted on all samples. The quantiles come from folds: each sample is scored by a fit on the others,
    so that of exchangeable ID samples no more than 1 - `accept` are flagged. Shifted samples join the quantiles.

    Raises:
        DataError: the samples are too few for the score, lack what it needs, or it does not keep its promise.
    """
    choice = None
    if held.outside:
        found, choice = _measured(held, wanted, on_note)
    else:
        found = _fit(find_ood_score(DEFAULT if wanted.score == AUTO else wanted.score), held, wanted)
    row, state = found.fitting.row, found.fitting.whole
    kinds = {name: torch.float16 if name in row.half else torch.float32 for name in row.stored}
    tensors = {name: tensor.to(kinds[name]) for name, tensor in state.items()}
    tensors[QUANTILES] = _ascending(thinned(totals(found.welcome)))
    if row.by_layer is not None:
        tensors[PROFILE] = _ascending(np.stack([thinned(layer) for layer in found.welcome]))
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise DataError(f"the OOD score {row.name} has no finite fit to these samples: are all alike? give others")
    _tell_bank(row, tensors, len(found.fitting.fold), on_note)
    accepted = _accepted(found, wanted.accept)
    fit = OodFit(row.name, accepted.samples, wanted.accept)
    sets = None
    if held.inside.truth is not None and (wanted.fixed or held.inside.places is not None):
        known, promises = LabelledAnswers.of(held.inside), wanted.promises
        sure, sets = fit_sure(known, promises), fit_sets(known, promises)
        fit = replace(fit, accuracy=promises.accuracy)
        if wanted.fixed:
            counts = np.bincount(known.labels, minlength=len(known.names))
            fit = replace(fit, baseline=_baseline(known.right, known.probabilities.max(-1), counts))
        if sure is not None:
            fit = replace(fit, confidences=sure) if promises.by_class else replace(fit, confidence=sure[0])
    if held.inside.calibration.thresholds is not None and held.inside.truth is not None:
        table = held.inside.task.table(held.inside)
        baseline = _baseline(table.required_outcomes().correct, table.msp, table.prediction.sum(0))
        fit = replace(fit, accuracy=wanted.promises.accuracy, baseline=baseline)
    fitted = FittedOod(fit, {name: in_memory(tensor) for name, tensor in tensors.items()})
    return FoundOod(fitted, choice, accepted, _shift(found, wanted.accept), sets=sets)


def _ascending(values: FloatArray) -> torch.Tensor:
    return torch.from_numpy(values).float()


def _accepted(found: _Fit, accept: float) -> Accepted:
    """Returns the share of ID samples that fits and quantiles accept which do not know them.

    Raises:
        DataError: it is not the share that is promised, beyond all chance.
    """
    count = found.fitting.inside.samples
    kept = Accepted(count, found.fitting.accepted(accept))
    low, high = kept.interval(BROKEN)
    if not found.shifted and not low <= accept <= high:
        flags = "flags too many inputs" if kept.share < accept else "would hardly flag anything"
        raise DataError(
            f"the OOD score {found.fitting.row.name} {flags}: it accepts {kept} of {count} held-out calibration "
            f"samples, not the {100 * accept:g} % that are promised: give more data, or choose another `ood_score`"
        )
    return kept


def _shift(found: _Fit, accept: float) -> dict[str, tuple[float, float]]:
    """Returns the flagged shares of shifted samples by quantiles of ID samples alone, and with them."""

    def share(scores: FloatArray, known: FloatArray) -> float:
        typical = typicality(torch.from_numpy(totals(scores)), torch.from_numpy(np.sort(totals(known))))
        return float(flagged(typical, accept).double().mean())

    return {name: (share(one, found.inside), share(one, found.welcome)) for name, one in found.shifted.items()}


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


def _measured(held: Held, wanted: Wanted, on_note: Callable[[str], None]) -> tuple[_Fit, Choice]:
    """Returns the fit that is named, or chosen, and its detection of the OOD sets beside that of the other scores."""
    fits: dict[str, _Fit] = {}
    named = None if wanted.score == AUTO else wanted.score
    if not wanted.fixed:
        named = DEFAULT  # others depend on classes, which may change
    for row in OOD_SCORES:
        if not _tried(row, held, wanted, named):
            continue
        try:
            fits[row.name] = _fit(row, held, wanted)
        except DataError as error:
            if named:
                raise
            on_note(f"OOD score {row.name} is not tried: {error}")
    inside = {name: totals(fit.welcome) for name, fit in fits.items()}
    outside = {name: {of: totals(one) for of, one in fit.outside.items()} for name, fit in fits.items()}
    choice = choose_score(inside, outside, named=named)
    return fits[choice.score], choice


def _tried(row: OodScore, held: Held, wanted: Wanted, named: str | None) -> bool:
    """Returns whether a score has a part in the choice: MSP always, others where the answers have what they take."""
    if named is not None:
        return row.name in (BASELINE, named)
    assert held.inside.member_logits is not None
    alone = len(held.inside.member_logits) == 1 and row.name == "mutual-information"  # one member agrees with itself
    return not alone and not (row.labelled and held.inside.truth is None)


def _fit(row: OodScore, held: Held, wanted: Wanted) -> _Fit:
    inside = held.inside.to_score(held.classifier and held.classifier.arrays)
    members, _, width = inside.features.shape
    most = max(NEIGHBOURS, wanted.bank * 10**6 // (4 * members * width)) if row.name == "knn" else None
    fitting = Fitting(row, inside, held.temperature, most)
    sets = {**held.shifted, **held.outside}
    scores, *others = fitting.held_out([one.to_score() for one in sets.values()])
    found = dict(zip(sets, others, strict=True))
    shifted = {name: found[name] for name in held.shifted}
    return _Fit(fitting, scores, shifted, {name: found[name] for name in held.outside})


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


def _tell_bank(
    row: OodScore, tensors: Mapping[str, torch.Tensor], samples: int, on_note: Callable[[str], None]
) -> None:
    """Notes the size of a bank of features."""
    if "bank" in tensors:
        bank = tensors["bank"]
        on_note(f"the bank of {row.name} keeps {bank.shape[1]} of {samples} samples, {4 * bank.numel() / 1e6:.1f} MB")
