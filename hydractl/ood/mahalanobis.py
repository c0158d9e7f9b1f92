"""Mahalanobis distances of what the classifier reads, and scores made of them; means over members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from hydractl.errors import DataError
from hydractl.ood.score import Fitted, MemberSamples, OodScore, Outputs, State, each_left_out, each_member
from hydractl.ood.statistics import inverse_root, left_out_distances, shrunk_covariance, unit_length, whitening

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

ROWS = 1024  # samples whose distances to all classes are held at once
AXES = {"center": "MD", "whiten": "MDD", "means": "MCD"}


def fit_distance(samples: MemberSamples) -> Fitted:
    """Fits the class means and the shrunk covariance within classes, which all classes share.

    Raises:
        DataError: a class has no samples, or the samples have no labels.

    Source: Lee et al. 2018, equations 1 and 2, as OpenOOD 1.5 computes it (`mds`), shrunk.
    """
    import numpy as np

    labels, classes = samples.by_class(), samples.logits.shape[1]
    counts = np.bincount(labels, minlength=classes)
    if not counts.all():
        raise DataError(
            f"no samples of class {int(np.argmin(counts))} to fit on: the Mahalanobis distance needs the mean of each "
            "class: give more data, or choose another score"
        )
    return fit_classes(samples.features, labels)


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


def fit_relative(samples: MemberSamples) -> Fitted:
    """Fits `fit_distance`, and the covariance of all samples as one class.

    Source: Ren et al. 2021, section 2, as OpenOOD 1.5 computes it (`rmds`), shrunk.
    """
    fitted = fit_distance(samples)
    return {**fitted, "background": whitening(samples.features - fitted["center"])}


def fit_combined(samples: MemberSamples) -> Fitted:
    """Fits `fit_distance`, and means and deviations of the free energy and of the distance."""
    import numpy as np
    from scipy.special import logsumexp

    fitted = fit_distance(samples)
    white = (samples.features - fitted["center"]) @ fitted["whiten"]
    distance = np.min([np.square(white - mean).sum(-1) for mean in fitted["means"]], axis=0)
    parts = (-logsumexp(samples.logits, axis=-1), distance)
    location, scale = (np.array([f(part) for part in parts]) for f in (np.mean, np.std))
    return {**fitted, "location": location, "scale": np.where(scale > 0, scale, 1)}


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


def _left_out(samples: MemberSamples) -> NDArray[np.float64]:
    """Returns `left_out_to_nearest` of labelled samples."""
    return left_out_to_nearest(samples.features, samples.by_class())


def relative_left_out(samples: MemberSamples) -> NDArray[np.float64]:
    """Returns `_left_out` less the distance to all others as one class."""
    return _left_out(samples) - left_out_distances(samples.features)


def combined_left_out(samples: MemberSamples) -> NDArray[np.float64]:
    """Returns the free energy and `_left_out`, each standardised on all samples, together."""
    from scipy.special import logsumexp

    fitted = fit_combined(samples)
    parts = (-logsumexp(samples.logits, axis=-1), _left_out(samples))
    (first, second), (by, scale) = fitted["location"], fitted["scale"]
    combined: NDArray[np.float64] = (parts[0] - first) / by + (parts[1] - second) / scale
    return combined


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


def relative(state: State, answers: Outputs) -> Tensor:
    """Returns the distance to the nearest class less that to all samples as one class, mean over members.

    State: as `to_nearest`, and `background` `[M,D',D']`, which whitens all samples around `center`.
    """
    import torch

    features = answers.read()
    # The distances are far larger than their difference, which needs float64; MPS has none.
    wide = features.dtype if features.device.type == "mps" else torch.float64
    state = {name: tensor.to(wide) for name, tensor in state.items()}
    around = ((features.to(wide) - state["center"].unsqueeze(-2)) @ state["background"]).square().sum(-1)
    return (to_nearest(state, features.to(wide)) - around).mean(0).to(features.dtype)


def _combined(state: State, answers: Outputs) -> Tensor:
    """Returns the sum of the free energy and the distance, each standardised on ID samples, mean over members.

    State: as `to_nearest`, and `location` and `scale` `[M,2]` of the two.
    """
    parts = (-answers.member_logits.logsumexp(-1), to_nearest(state, answers.read()))
    location, scale = state["location"], state["scale"]
    first, second = ((part - location[:, i, None]) / scale[:, i, None] for i, part in enumerate(parts))
    return (first + second).mean(0)


def _of_unit_length(
    score: OodScore,
    fit: Callable[[MemberSamples], Fitted],
    without: Callable[[MemberSamples], NDArray[np.float64]],
) -> OodScore:
    """Returns a score of features as one of features at length 1."""

    def unit(samples: MemberSamples) -> MemberSamples:
        return replace(samples, features=unit_length(samples.features))

    def score_unit(state: State, answers: Outputs) -> Tensor:
        features = answers.read()
        return score.score(state, answers._replace(features=normalised(features)))

    text = score.help.replace("the features", "the features at length 1").replace("distance less", "distance++ less")
    return replace(
        score,
        name=f"{score.name}++",
        help=text,
        source="Müller & Hein 2025",
        score=score_unit,
        fit=each_member(lambda samples: fit(unit(samples))),
        left_out=each_left_out(lambda samples: without(unit(samples))),
    )


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
    each_member(fit_distance),
    AXES,
    labelled=True,
    left_out=each_left_out(_left_out),
)
RELATIVE = OodScore(
    "relative-mahalanobis",
    "Mahalanobis distance less that to all calibration samples as one class, mean over members",
    "Ren et al. 2021",
    relative,
    "features",
    each_member(fit_relative),
    {**AXES, "background": "MDD"},
    labelled=True,
    left_out=each_left_out(relative_left_out),
)
MAHALANOBIS_UNIT = _of_unit_length(MAHALANOBIS, fit_distance, _left_out)
RELATIVE_UNIT = _of_unit_length(RELATIVE, fit_relative, relative_left_out)
COMBINED = OodScore(
    "combined",
    "free energy plus Mahalanobis distance, each standardised on calibration samples, mean over members",
    "this project",
    _combined,
    "features",
    each_member(fit_combined),
    {**AXES, "location": "M2", "scale": "M2"},
    labelled=True,
    left_out=each_left_out(combined_left_out),
)
