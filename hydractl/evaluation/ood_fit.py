"""Fits what tells OOD for one network: the statistics of a score, quantiles of ID samples, and the choice of score."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from hydractl.checkpoint.ood import MOST_QUANTILES, NEIGHBOURS, QUANTILES, FittedOod, OodFit
from hydractl.checkpoint.tensors import in_memory
from hydractl.errors import DataError
from hydractl.evaluation.run import member_samples
from hydractl.evaluation.systems import Classifier, SetAnswers
from hydractl.metrics import feature_scores
from hydractl.metrics.checks import FloatArray, Logits
from hydractl.metrics.held_out import few_in_folds, fitted, held_out_scores
from hydractl.metrics.ood_choice import Choice, choose_score
from hydractl.metrics.ood_scores import BASELINE, OOD_SCORES, OodScore, find_ood_score
from hydractl.metrics.selective import sure_from
from hydractl.model.ood_head import State
from hydractl.model.prediction import prediction

AUTO = "auto"


@dataclass(frozen=True)
class Wanted:
    """The OOD score to fit."""

    score: str  # a name of `OOD_SCORES`, or `auto`
    accept: float  # the share of ID samples that should not be flagged
    bank: int  # the largest size of a bank of features, MB
    accuracy: float | None = None  # the share of sure answers that should be right; None for no sure answers

    def needs_features(self, sets: Collection[str]) -> bool:
        """Returns whether features have to be collected, with these OOD sets to choose by."""
        return bool(sets) if self.score == AUTO else find_ood_score(self.score).needs_features


@dataclass(frozen=True, eq=False)
class Held:
    """The answers of one network to the samples of calibration."""

    inside: SetAnswers  # to labelled ID samples
    outside: Mapping[str, SetAnswers]  # to OOD samples by the name of their set
    classifier: Classifier | None  # of its members
    temperature: float  # divides logits

    @property
    def few(self) -> bool:
        """True if the samples of four folds are too few for a covariance."""
        assert self.inside.features is not None
        _, count, width = self.inside.features.shape
        member_logits, _ = self.inside.to_fit_on()
        # All fits shrink or none does: else samples within and without would differ in their distances.
        return few_in_folds(count, member_logits.shape[-1], width)


@dataclass(frozen=True, eq=False)
class _Fit:
    """One score: its state by all samples, and the scores of ID and OOD samples by states that do not know them."""

    score: OodScore
    state: State
    inside: FloatArray
    outside: Mapping[str, FloatArray]


def fit_ood(held: Held, wanted: Wanted, on_note: Callable[[str], None]) -> tuple[FittedOod, Choice | None]:
    """Returns the score as a file stores it, and what it and others do on the OOD sets, if there are some.

    Statistics are fitted on all samples. The quantiles come from folds: each sample is scored by a fit on the others,
    so that of exchangeable ID samples no more than 1 - `accept` are flagged.

    Raises:
        DataError: the samples are too few for the score, or lack what it needs.
    """
    auto, choice = wanted.score == AUTO, None
    if auto and not held.outside:
        on_note(
            f"without `ood_data` the OOD score is {BASELINE}: with some, scores of features are tried too, which often "
            "detect more"
        )
    if held.outside:
        found, choice = _measured(held, wanted, on_note)
    else:
        found = _fit(find_ood_score(BASELINE if auto else wanted.score), held, wanted)
    _tell(found, held, on_note)
    tensors = {name: tensor.float() for name, tensor in found.state.items()}
    tensors[QUANTILES] = torch.from_numpy(thinned(found.inside)).float()
    confidence = None if wanted.accuracy is None else _sure_from(held, wanted.accuracy)
    fit = OodFit(found.score.name, len(found.inside), wanted.accept, wanted.accuracy, confidence=confidence)
    return FittedOod(fit, {name: in_memory(tensor) for name, tensor in tensors.items()}), choice


def _sure_from(held: Held, accuracy: float) -> float:
    """Returns the MSP from which answers are right as often as wanted.

    Raises:
        DataError: no confidence reaches that.
    """
    logits, labels = held.inside.to_fit_on()
    # As `predict` computes it: a sample at the threshold should be sure there too.
    answer = prediction(torch.from_numpy(logits), held.temperature, None)
    found = sure_from(answer.msp.numpy(), answer.probabilities.argmax(-1).numpy() == labels, accuracy)
    if found is None:
        share = f"{100 * accuracy:g} %"
        raise DataError(
            f"no confidence makes answers right {share} of the time, with 95 % certainty from {len(labels)} samples: "
            "give more calibration data, or a lower `accuracy`"
        )
    return found


def _measured(held: Held, wanted: Wanted, on_note: Callable[[str], None]) -> tuple[_Fit, Choice]:
    """Returns the fit that is named, or chosen, and its detection of the OOD sets beside that of the other scores."""
    fits: dict[str, _Fit] = {}
    named = None if wanted.score == AUTO else wanted.score
    member_logits, _ = held.inside.to_fit_on()
    alone = {"mutual-information"} if len(member_logits) == 1 else set()  # one member agrees with itself
    for score in OOD_SCORES:
        if score.name in alone if named is None else score.name not in (BASELINE, named):
            continue
        try:
            fits[score.name] = _fit(score, held, wanted)
        except DataError as error:
            if named:
                raise
            on_note(f"OOD score {score.name} is not tried: {error}")
    outside = {name: fit.outside for name, fit in fits.items()}
    choice = choose_score({name: fit.inside for name, fit in fits.items()}, outside, named=named)
    return fits[choice.score], choice


def _fit(score: OodScore, held: Held, wanted: Wanted) -> _Fit:
    inside, outside = held.inside, held.outside
    if score.fit is None:
        scores, *others = (_answer_scores(score, one, held.temperature) for one in (inside, *outside.values()))
        return _Fit(score, {}, scores, dict(zip(outside, others, strict=True)))
    assert inside.features is not None
    members, count, width = inside.features.shape
    most = max(NEIGHBOURS, wanted.bank * 10**6 // (4 * members * width)) if score.name == "knn" else count
    fits, found = [], []
    for number, samples in enumerate(member_samples(inside, held.classifier, held.few)):
        sets = [_of_member(one, number) for one in outside.values()]
        found.append(held_out_scores(score, samples, sets, most))
        fits.append(fitted(score, samples, np.arange(count), most))
    scores, *others = (np.mean(parts, axis=0) for parts in zip(*found, strict=True))
    return _Fit(score, feature_scores.stacked(fits), scores, dict(zip(outside, others, strict=True)))


def _of_member(held: SetAnswers, number: int) -> tuple[Logits, Logits]:
    assert held.member_logits is not None and held.features is not None
    return held.features[number], held.member_logits[number]


def _answer_scores(score: OodScore, held: SetAnswers, temperature: float) -> FloatArray:
    assert held.member_logits is not None
    return feature_scores.score_chunks(score.name, {}, None, held.member_logits, temperature=temperature)


def thinned(scores: FloatArray, most: int = MOST_QUANTILES) -> FloatArray:
    """Returns the scores in ascending order, of more than `most` the ranks k (N + 1) / (most + 1), rounded up.

    Rounding up keeps the promise of typicality: a sample is never flagged because of scores that were left out.

    >>> thinned(np.arange(9.0), 4).tolist()
    [1.0, 3.0, 5.0, 7.0]
    """
    ordered = np.sort(scores)
    if len(ordered) <= most:
        return ordered
    ranks = -(-np.arange(1, most + 1) * (len(ordered) + 1) // (most + 1))
    return np.asarray(ordered[ranks - 1])


def _tell(found: _Fit, held: Held, on_note: Callable[[str], None]) -> None:
    """Notes the size of what is stored, and that a covariance was shrunk."""
    size = sum(4 * tensor.numel() for tensor in found.state.values())
    if "bank" in found.state:
        rows = found.state["bank"].shape[1]
        on_note(f"the bank of {found.score.name} keeps {rows} of {len(found.inside)} samples, {size / 1e6:.1f} MB")
    if "whiten" in found.state and held.few:
        on_note(
            f"{len(found.inside)} samples are few for {found.state['whiten'].shape[-1]} features: the covariance is "
            "shrunk (Ledoit & Wolf 2004); more calibration data detect more"
        )
