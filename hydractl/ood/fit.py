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

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
FOLDS = 20  # of which `accepted` takes a fifth for new samples
CHECKS = 5  # parts that `accepted` takes for new samples in turn
CHUNK = 1024  # samples scored at once


def score_samples(row: OodScore, state: State, samples: FitSamples, temperature: float = 1.0) -> FloatArray:
    """Returns the scores `[n]` of an ensemble's answers in float64, some at a time; of a sum its parts `[L+1,n]`.

    Args:
        temperature: divides the logits of scores that read nothing else.
    """
    parts = []
    for start in range(0, max(samples.samples, 1), CHUNK):
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
    """One score, and the ID samples it is fitted on; `temperature` is that of the answers."""

    row: OodScore
    inside: FitSamples
    temperature: float = 1.0

    @cached_property
    def fold(self) -> IntArray:
        """The fold of each sample, `[N]`: evenly by class, or at random without labels."""
        labels = self.inside.labels
        if labels is None:
            return np.random.default_rng(0).permutation(self.inside.samples) % FOLDS
        # Going on from class to class: many classes of few samples would otherwise all start with fold 0.
        return np.argsort(np.argsort(labels, kind="stable")) % FOLDS

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
        try:
            return as_state(self.row.fit(self.inside.subset(places)))
        except DataError as error:
            where = f" (each fit leaves a fold of the {len(self.fold)} samples out)" if left_out else ""
            raise DataError(f"{error}{where}") from error

    @cached_property
    def whole(self) -> State:
        """The fit on all samples."""
        return self.state()

    def scores(self, state: State, samples: FitSamples) -> FloatArray:
        """Returns `score_samples` of this score."""
        return score_samples(self.row, state, samples, self.temperature)

    def held_out(self) -> FloatArray:
        """Returns the scores `[...,N]` of the ID samples, each by a fit on all others."""
        _ = self.whole  # refuses samples that are too few
        return self._left_out(self.inside)

    def _left_out(self, samples: FitSamples) -> FloatArray:
        return self.scores({}, samples) if self.row.left_out is None else self.row.left_out(samples)

    def _quantiles(self, fresh: IntArray) -> FloatArray:
        """Returns the scores of the samples outside some folds, each by a fit without it and without those folds."""
        return totals(self._left_out(self._within(np.setdiff1d(self.fold, fresh))))

    def _within(self, folds: IntArray | int) -> FitSamples:
        return self.inside.subset(np.flatnonzero(np.isin(self.fold, folds)))

    def accepted(self, accept: float, shifted: Sequence[FitSamples] = ()) -> int:
        """Returns how many of the ID samples are not flagged by fits and quantiles that do not know them.

        What the stored fit and quantiles do to new samples, seen on old ones: a fifth is new to the others.

        Args:
            shifted: samples whose scores join the quantiles, as they do in the file.
        """
        kept = 0
        for number in range(min(CHECKS, self.folds)):
            fresh = np.arange(number, self.folds, CHECKS)
            state = self.state(*fresh)
            scores = torch.from_numpy(totals(self.scores(state, self._within(fresh))))
            welcome = [self._quantiles(fresh), *(totals(self.scores(state, samples)) for samples in shifted)]
            typical = typicality(scores, torch.from_numpy(np.sort(np.concatenate(welcome))))
            kept += int((~flagged(typical, accept)).sum())
        return kept


def fitted_scorer(row: OodScore, samples: FitSamples) -> Callable[[FitSamples, float], FloatArray]:
    """Returns a score, fitted on all samples, as a function of answers and their temperature.

    Raises:
        DataError: the samples are too few for this score, or lack what it needs.
    """
    state = {} if row.fit is None else as_state(row.fit(samples))
    return lambda answers, temperature: totals(score_samples(row, state, answers, temperature))
