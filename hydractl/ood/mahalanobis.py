"""The Mahalanobis distance of what the classifier reads to class means, mean over members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hydractl.errors import DataError
from hydractl.ood.score import FitSamples, Fitted, OodScore, Outputs, State
from hydractl.ood.statistics import inverse_root, shrunk_covariance, whitening

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

ROWS = 1024  # samples whose distances to all classes are held at once
AXES = {"center": "MD", "whiten": "MDD", "means": "MCD"}


def fit_distance(samples: FitSamples) -> Fitted:
    """Fits each member's class means and the shrunk covariance within classes, which all classes share.

    Raises:
        DataError: a class has no samples, or the samples have no labels.

    Source: Lee et al. 2018, equations 1 and 2, as OpenOOD 1.5 computes it (`mds`), shrunk.
    """
    import numpy as np

    labels = samples.by_class()
    counts = np.bincount(labels, minlength=samples.member_logits.shape[2])
    if not counts.all():
        raise DataError(
            f"no samples of class {int(np.argmin(counts))} to fit on: the Mahalanobis distance needs the mean of each "
            "class: give more data, or choose another score"
        )
    return fit_members(samples.features, labels)


def fit_members(features: NDArray[Any], labels: NDArray[np.int64]) -> Fitted:
    """Returns `fit_classes` of the features `[M,N,D]` of members, stacked.

    A direction in one member's feature space means nothing in another's, so each has a fit of its own.
    """
    import numpy as np

    each = [fit_classes(rows.astype("float64"), labels) for rows in features]
    return {name: np.stack([member[name] for member in each]) for name in each[0]}


def fit_classes(features: NDArray[np.float64], labels: NDArray[np.int64]) -> Fitted:
    """Returns the whitened means of classes and the shrunk covariance within them; each label has a row of `[N,D]`."""
    center = features.mean(axis=0)
    centred = features - center
    means = _means(centred, labels)
    whiten = whitening(centred - means[labels])
    return {"center": center, "whiten": whiten, "means": means @ whiten}


def _means(rows: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the mean row `[C,D]` of each class."""
    import numpy as np

    counts = np.bincount(labels)
    sums = np.zeros((len(counts), rows.shape[1]))
    np.add.at(sums, labels, rows)
    return np.asarray(sums / counts[:, None])


def left_out_to_nearest(features: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the distance `[N]` of each sample to the nearest class by a fit on all others, by one factorisation.

    Leaving out a sample moves the mean of its class, and changes the covariance by a matrix of rank one along its
    deviation r from that mean. A class that had this sample alone is gone.

    Source: Sherman & Morrison 1950.
    """
    import numpy as np

    count, sizes = len(features), np.bincount(labels)[labels]
    centred = features - features.mean(axis=0)
    means = _means(centred, labels)
    covariance = shrunk_covariance(centred - means[labels])
    root = inverse_root(covariance.matrix(count / (count - 1)))
    white, means = centred @ root, means @ root
    away = white - means[labels]  # r
    more = sizes / np.maximum(sizes - 1, 1)
    change = (1 - covariance.share) * more / (count - 1)
    change /= 1 - change * np.square(away).sum(-1)
    nearest = np.empty(count)
    for some in np.array_split(np.arange(count), 1 + count // ROWS):
        squares = np.square(white[some]).sum(-1)[:, None] - 2 * white[some] @ means.T + np.square(means).sum(-1)
        cross = (white[some] * away[some]).sum(-1)[:, None] - away[some] @ means.T
        distances = squares + change[some, None] * cross**2
        same = (np.arange(len(some)), labels[some])
        distances[same] = np.where(sizes[some] > 1, more[some] ** 2 * distances[same], np.inf)
        nearest[some] = distances.min(axis=-1).clip(min=0)
    return nearest


def _left_out(samples: FitSamples) -> NDArray[np.float64]:
    """Returns `left_out_to_nearest` of labelled samples, the mean over members."""
    import numpy as np

    labels = samples.by_class()
    each = [left_out_to_nearest(features.astype("float64"), labels) for features in samples.features]
    return np.asarray(np.mean(each, axis=0))


def to_nearest(state: State, features: Tensor) -> Tensor:
    """Returns min over classes c of (x - mean_c)^T P (x - mean_c), P = `whiten` `whiten`^T, of `[M,B,D']`: `[M,B]`.

    State: `center` `[M,D']`, `whiten` `[M,D',D']`, `means` `[M,C,D']`, the class means less `center`, whitened.
    """
    white = (features - state["center"].unsqueeze(-2)) @ state["whiten"]
    means = state["means"]
    products = white @ means.mT  # [M,B,C]
    lengths = white.square().sum(-1, keepdim=True) + means.square().sum(-1).unsqueeze(-2)
    return (lengths - 2 * products).clamp(min=0).amin(-1)


def mahalanobis(state: State, answers: Outputs) -> Tensor:
    """Returns the mean over members of the distance to the nearest class."""
    return to_nearest(state, answers.read()).mean(0)


def normalised(vectors: Tensor) -> Tensor:
    """Returns vectors `[...,D]` at length 1."""
    import torch.nn.functional as F

    return F.normalize(vectors, dim=-1, eps=1e-30)


MAHALANOBIS = OodScore(
    "mahalanobis",
    "squared Mahalanobis distance of the features to the nearest class mean, mean over members",
    "Lee et al. 2018",
    mahalanobis,
    "features",
    fit_distance,
    AXES,
    labelled=True,
    left_out=_left_out,
)
