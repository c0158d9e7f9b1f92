"""Scores of features that flatter no ID sample: each is scored by a fit on the others."""

from collections.abc import Sequence

import numpy as np

from hydractl.errors import DataError
from hydractl.metrics import feature_scores
from hydractl.metrics.checks import FloatArray, IntArray, Logits
from hydractl.metrics.feature_scores import MemberSamples
from hydractl.metrics.ood_scores import OodScore

FOLDS = 5


def few_in_folds(samples: int, classes: int, width: int) -> bool:
    """Returns whether the covariance within classes is singular when one of the folds is left out."""
    return feature_scores.too_few(samples * (FOLDS - 1) // FOLDS, classes, width)


def held_out_scores(
    score: OodScore, inside: MemberSamples, outside: Sequence[tuple[Logits, Logits]] = (), most: int | None = None
) -> list[FloatArray]:
    """Returns one member's scores of the ID samples, `[N]`, and of each OOD set, `[N']`, higher = more OOD.

    ID samples lie in folds, evenly by class, and each is scored by a fit on the other folds. The same fits score the
    samples of an OOD set, equally many each.

    Args:
        score: one that is fitted.
        outside: features `[N',D']` and logits `[N',C]` of each set.
        most: how many samples a fit may use; None for all.

    Raises:
        DataError: the samples of a fit are too few for this score.
    """
    fold = feature_scores.rank_in_class(inside.labels) % FOLDS
    folds = 1 + fold.max()
    sets = [(inside.features, inside.logits, fold), *((*one, np.arange(len(one[0])) % folds) for one in outside)]
    found = [np.empty(len(features)) for features, _, _ in sets]
    for number in range(folds):
        try:
            state = feature_scores.stacked([fitted(score, inside, np.flatnonzero(fold != number), most)])
        except DataError as error:
            raise DataError(f"{error} (each fit leaves a fold of the {len(fold)} samples out)") from error
        for scores, (features, logits, own) in zip(found, sets, strict=True):
            if len(places := np.flatnonzero(own == number)):
                scores[places] = feature_scores.score_chunks(
                    score.name, state, features[None, places], logits[None, places]
                )
    return found


def fitted(score: OodScore, inside: MemberSamples, places: IntArray, most: int | None = None) -> feature_scores.Fitted:
    """Returns a fit on the ID samples at some places, at most so many of them."""
    assert score.fit is not None
    if most is not None:
        places = places[feature_scores.even_by_class(inside.labels[places], most)]
    found: feature_scores.Fitted = getattr(feature_scores, score.fit)(inside.subset(places))
    return found


def search_scores(
    score: OodScore,
    inside: tuple[Logits, Logits],
    labels: IntArray,
    outside: Sequence[tuple[Logits, Logits]],
    affine: tuple[FloatArray, FloatArray],
) -> list[FloatArray]:
    """Returns `held_out_scores` of a network that a search measures, of features and logits in any precision.

    Args:
        affine: the weights `[C,D']` and biases `[C]` of its classifier.
    """
    features, logits = (part.astype(np.float64) for part in inside)
    shrink = few_in_folds(len(labels), logits.shape[1], features.shape[1])
    return held_out_scores(score, MemberSamples(features, logits, labels, affine, shrink=shrink), outside)
