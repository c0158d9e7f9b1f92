"""Fits of OOD scores that flatter no ID sample: each is scored by a fit on the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.errors import DataError
from hydractl.ood.score import FitSamples, OodScore, Outputs, State, as_state, flagged, typicality
from hydractl.ood.statistics import even_by_class, rank_in_class

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
FOLDS = 20  # a fit on fewer samples is a worse one: in fewer folds hardly anything would be flagged
CHECKS = 5  # parts that `accepted` takes for new samples in turn
CHUNK = 1024  # samples scored at once: each of them may meet a whole bank of features


def score_samples(row: OodScore, state: State, samples: FitSamples, temperature: float = 1.0) -> FloatArray:
    """Returns the scores `[n]` of an ensemble's answers in float64, some at a time; of a sum its parts `[L+1,n]`.

    Args:
        temperature: divides the logits of scores that read nothing else.
    """
    parts = []
    for start in range(0, samples.samples, CHUNK):
        some = samples.subset(np.arange(start, min(start + CHUNK, samples.samples)))
        hidden = [_wide(layer) for layer in some.hidden]
        answers = Outputs(_wide(some.member_logits), temperature, _wide(some.features), hidden)
        parts.append((row.parts or row.score)(state, answers))
    return np.asarray(torch.cat(parts, -1).numpy())


def _wide(values: NDArray[np.floating]) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.float64, order="C"))


def totals(scores: FloatArray) -> FloatArray:
    """Returns the scores `[n]`, the sums of parts `[L+1,n]`."""
    return scores.sum(0) if scores.ndim == 2 else scores


@dataclass(frozen=True, eq=False)
class Fitting:
    """One score and the ID samples it is fitted on, in folds.

    Attributes:
        most: how many samples a fit may use; None for all.
        temperature: of the answers.
    """

    row: OodScore
    inside: FitSamples
    temperature: float = 1.0
    most: int | None = None

    @cached_property
    def fold(self) -> IntArray:
        """The fold of each sample, `[N]`: evenly by class, or at random without labels."""
        labels = self.inside.labels
        order = np.random.default_rng(0).permutation(self.inside.samples) if labels is None else rank_in_class(labels)
        return order % FOLDS

    @property
    def folds(self) -> int:
        """The number of folds with samples."""
        return int(1 + self.fold.max())

    def state(self, *left_out: int) -> State:
        """Returns a fit on the samples outside some folds.

        Raises:
            DataError: they are too few for this score.
        """
        if self.row.fit is None:
            return {}
        places = np.flatnonzero(~np.isin(self.fold, left_out))
        if self.most is not None and len(places) > self.most:
            labels = self.inside.labels
            kept = np.zeros(len(places), np.int64) if labels is None else labels[places]
            places = places[even_by_class(kept, self.most)]
        try:
            return as_state(self.row.fit(self.inside.subset(places)))
        except DataError as error:
            where = f" (each fit leaves a fold of the {len(self.fold)} samples out)" if left_out else ""
            raise DataError(f"{error}{where}") from error

    @property
    def _leaves_out(self) -> Callable[[FitSamples], FloatArray] | None:
        """The score's own way to leave out one sample after the other; None for folds, and where fits take some."""
        taken = self.most is None or self.inside.samples <= self.most
        return self.row.left_out if taken else None

    @cached_property
    def whole(self) -> State:
        """The fit on all samples."""
        return self.state()

    def scores(self, state: State, samples: FitSamples) -> FloatArray:
        """Returns `score_samples` of this score."""
        return score_samples(self.row, state, samples, self.temperature)

    def held_out(self, ood_sets: Sequence[FitSamples] = ()) -> list[FloatArray]:
        """Returns the scores of the ID samples and of each OOD set, `[...,n]`, by fits that do not know them.

        Each ID sample is scored by a fit on all others, or on the other folds. In that case the same fits score the
        samples of an OOD set, equally many each.
        """
        sets = [(self.inside, self.fold), *((samples, np.arange(samples.samples) % self.folds) for samples in ood_sets)]
        if self.row.fit is None or self._leaves_out is not None:
            state = self.whole  # refuses samples that are too few
            id_scores = self.scores(state, self.inside) if self._leaves_out is None else self._leaves_out(self.inside)
            return [id_scores, *(self.scores(state, samples) for samples in ood_sets)]
        filled: list[FloatArray | None] = [None] * len(sets)
        for number in range(self.folds):
            state = self.state(number)
            for place, (samples, fold) in enumerate(sets):
                if len(places := np.flatnonzero(fold == number)):
                    filled[place] = _put(filled[place], places, self.scores(state, samples.subset(places)), len(fold))
        return [scores if scores is not None else np.empty(0) for scores in filled]

    def _quantiles(self, fresh: IntArray) -> FloatArray:
        """Returns the scores of the samples outside some folds, each by a fit without it and without those folds."""
        others = np.setdiff1d(self.fold, fresh)
        if self._leaves_out is not None:
            return totals(self._leaves_out(self._within(others)))
        scores = (self.scores(self.state(*fresh, fold), self._within(fold)) for fold in others)
        return np.concatenate([np.empty(0), *map(totals, scores)])  # folds may have no others

    def _within(self, folds: IntArray | int) -> FitSamples:
        return self.inside.subset(np.flatnonzero(np.isin(self.fold, folds)))

    def accepted(self, accept: float) -> int:
        """Returns how many of the ID samples are not flagged by fits and quantiles that do not know them.

        What the stored fit and quantiles do to new samples, seen on old ones: a fifth is new to the others.
        """
        kept = 0
        for number in range(min(CHECKS, self.folds)):
            fresh = np.arange(number, self.folds, CHECKS)
            scores = torch.from_numpy(totals(self.scores(self.state(*fresh), self._within(fresh))))
            typical = typicality(scores, torch.from_numpy(np.sort(self._quantiles(fresh))))
            kept += int((~flagged(typical, accept)).sum())
        return kept


def _put(filled: FloatArray | None, places: IntArray, scores: FloatArray, count: int) -> FloatArray:
    room = np.empty((*scores.shape[:-1], count)) if filled is None else filled
    room[..., places] = scores
    return room


def fitted_scorer(row: OodScore, samples: FitSamples) -> Callable[[FitSamples, float], FloatArray]:
    """Returns a score, fitted on all samples, as a function of answers and their temperature.

    Raises:
        DataError: the samples are too few for this score, or lack what it needs.
    """
    state = {} if row.fit is None else as_state(row.fit(samples))
    return lambda answers, temperature: totals(score_samples(row, state, answers, temperature))
