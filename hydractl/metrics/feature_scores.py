"""Fits of the OOD scores that read features, one member at a time; `hydractl.model.ood_head` computes the scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hydractl.checkpoint.ood import NEIGHBOURS
from hydractl.errors import DataError
from hydractl.metrics.checks import FloatArray, IntArray, Logits

if TYPE_CHECKING:
    from hydractl.model.ood_head import State

#: Fitted numbers of one member by name.
Fitted = Mapping[str, FloatArray]
CHUNK = 1024  # samples scored at once: each of them meets a whole bank of features
PERCENTILE = 90  # of the numbers that `react` leaves as they are


@dataclass(frozen=True, eq=False)
class MemberSamples:
    """Labelled ID samples as one member sees them, in float64."""

    features: FloatArray  # `[N,D']`
    logits: FloatArray  # `[N,C]`
    labels: IntArray  # `[N]` in 0..C-1
    # The weights `[C,D']` and biases `[C]` of its classifier, None if they are not known.
    affine: tuple[FloatArray, FloatArray] | None = None
    shrink: bool = False  # whether covariances are shrunk, since the samples are too few for the features

    def subset(self, places: IntArray) -> MemberSamples:
        """Returns the samples at some places."""
        return replace(self, features=self.features[places], logits=self.logits[places], labels=self.labels[places])

    def classifier(self) -> tuple[FloatArray, FloatArray]:
        """Returns the weights `[C,D']` and biases `[C]` by which the member makes logits of features."""
        if self.affine is None:
            raise DataError(
                "these predictions were saved without the classifier that the OOD score needs: add "
                "classifier.safetensors with its `weight` and `bias`, or choose another score"
            )
        return self.affine


def fit_mahalanobis(samples: MemberSamples) -> Fitted:
    """Fits the class means and the covariance within classes, which all classes share.

    With fewer samples than features the covariance should be shrunk (`too_few`); without that, the pseudo-inverse
    counts no distance along the unknown directions.

    Raises:
        DataError: a class has no samples.

    Source: Lee et al. 2018, equations 1 and 2, as OpenOOD 1.5 computes it (`mds`).
    """
    classes = samples.logits.shape[1]
    counts = np.bincount(samples.labels, minlength=classes)
    if not counts.all():
        raise DataError(
            f"no samples of class {int(np.argmin(counts))} to fit on: the Mahalanobis distance needs the mean of each "
            "class: give more data, or choose another score"
        )
    center = samples.features.mean(axis=0)
    centred = samples.features - center
    sums = np.zeros((classes, centred.shape[1]))
    np.add.at(sums, samples.labels, centred)
    means = sums / counts[:, None]
    whiten = _whitening(centred - means[samples.labels], samples.shrink)
    return {"center": center, "whiten": whiten, "means": means @ whiten}


def fit_relative_mahalanobis(samples: MemberSamples) -> Fitted:
    """Fits `fit_mahalanobis`, and the covariance of all samples as one class.

    Source: Ren et al. 2021, section 2, as OpenOOD 1.5 computes it (`rmds`).
    """
    fitted = fit_mahalanobis(samples)
    return {**fitted, "background": _whitening(samples.features - fitted["center"], samples.shrink)}


def too_few(samples: int, classes: int, width: int) -> bool:
    """Returns whether the covariance within classes of so many samples is singular."""
    return samples - classes < width


def shrunk_covariance(centred: FloatArray) -> FloatArray:
    """Returns (1 - s) S + s m I, the covariance S of rows `[N,D']` with mean 0 drawn to its mean variance m.

    Source: Ledoit & Wolf 2004, "A well-conditioned estimator for large-dimensional covariance matrices", section 3.
    """
    count, width = centred.shape
    covariance = centred.T @ centred / count
    mean = np.trace(covariance) / width
    spread = np.square(covariance).sum() - width * mean**2  # |S - m I|^2
    error = (
        np.square(centred).sum(axis=1) @ np.square(centred).sum(axis=1) / count - np.square(covariance).sum()
    ) / count
    share = min(error / spread, 1.0) if spread > 0 else 1.0
    return np.asarray((1 - share) * covariance + share * mean * np.eye(width))


def _whitening(centred: FloatArray, shrink: bool = False) -> FloatArray:
    """Returns V `[D',D']`, where V V^T is the pseudo-inverse of the covariance; unknown directions are columns of 0."""
    covariance = shrunk_covariance(centred) if shrink else centred.T @ centred / len(centred)
    variances, directions = np.linalg.eigh(covariance)
    known = variances > variances[-1] * len(variances) * np.finfo(np.float64).eps
    return np.asarray(directions * np.where(known, 1 / np.sqrt(np.where(known, variances, 1)), 0))


def fit_knn(samples: MemberSamples) -> Fitted:
    """Keeps the features of all samples, at unit length.

    Raises:
        DataError: fewer than 50 samples.

    Source: Sun et al. 2022, as OpenOOD 1.5 computes it with its K of 50.
    """
    if len(samples.features) < NEIGHBOURS:
        raise DataError(
            f"{len(samples.features)} samples to fit on: knn needs {NEIGHBOURS} at least, to find the {NEIGHBOURS}th "
            "nearest: give more data"
        )
    lengths = np.linalg.norm(samples.features, axis=-1, keepdims=True)
    return {"bank": samples.features / np.maximum(lengths, np.finfo(np.float64).tiny)}


def fit_vim(samples: MemberSamples) -> Fitted:
    """Fits the directions beyond the principal ones of the ID features, and the scale of the virtual logit.

    The origin is the point at which all logits are equal but for what the classifier cannot reach, -W^+ b. The scale
    alpha makes the virtual logit of ID samples as large as their largest logit, on average.

    Raises:
        DataError: no more samples than principal directions.

    Source: Wang et al. 2022, section 4, as OpenOOD 1.5 computes it.
    """
    count, width = samples.features.shape
    if count <= (principal := principal_dimensions(width)):
        raise DataError(
            f"{count} samples to fit on: vim needs more than the {principal} principal directions of {width} features: "
            "give more data"
        )
    weight, bias = samples.classifier()
    origin = -np.linalg.pinv(weight) @ bias
    centred = samples.features - origin
    _, directions = np.linalg.eigh(centred.T @ centred / count)  # by ascending variance
    rest = directions[:, : width - principal]
    alpha = samples.logits.max(axis=-1).mean() / np.linalg.norm(centred @ rest, axis=-1).mean()
    return {"origin": origin, "rest": rest, "alpha": np.array([alpha])}


def principal_dimensions(width: int) -> int:
    """Returns how many directions of features of this width count as principal.

    Source: Wang et al. 2022, appendix: 1000 of 2048 and 512 of 768; half of narrower ones, which it does not treat.
    """
    return 1000 if width >= 2048 else 512 if width >= 768 else width // 2


def fit_react(samples: MemberSamples) -> Fitted:
    """Fits the 90th percentile of all numbers in the ID features.

    Raises:
        DataError: no samples.

    Source: Sun et al. 2021, equation 4, as OpenOOD 1.5 computes it with its percentile of 90.
    """
    if not len(samples.features):
        raise DataError("0 samples to fit on: react needs one at least: give more data")
    weight, bias = samples.classifier()
    return {"threshold": np.percentile(samples.features, [PERCENTILE]), "weight": weight, "bias": bias}


def fit_combined(samples: MemberSamples) -> Fitted:
    """Fits `fit_mahalanobis`, and means and deviations of the free energy and of the distance."""
    from scipy.special import logsumexp

    fitted = fit_mahalanobis(samples)
    distance = score_chunks("mahalanobis", stacked([fitted]), samples.features[None], samples.logits[None])
    parts = (-logsumexp(samples.logits, axis=-1), distance)
    location, scale = (np.array([f(part) for part in parts]) for f in (np.mean, np.std))
    return {**fitted, "location": location, "scale": np.where(scale > 0, scale, 1)}


def stacked(fitted: Iterable[Fitted]) -> State:
    """Returns the members' fits as one state, float64, with the members first."""
    import torch

    each = list(fitted)
    return {name: torch.from_numpy(np.stack([member[name] for member in each])) for name in each[0]}


def even_by_class(labels: IntArray, most: int, seed: int = 0) -> IntArray:
    """Returns the places of at most `most` samples, drawn so that classes are as even as they can be, ascending."""
    drawn = np.random.default_rng(seed).permutation(len(labels))
    turns = rank_in_class(labels[drawn])
    return np.sort(drawn[np.argsort(turns, kind="stable")[:most]])


def rank_in_class(labels: IntArray) -> IntArray:
    """Returns how many samples of its class come before each, `[N]`.

    >>> rank_in_class(np.array([3, 1, 3, 3, 1])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    ranks = np.empty(len(labels), dtype=np.int64)
    ranks[order] = np.arange(len(labels)) - np.searchsorted(ordered, ordered, "left")
    return ranks


def score_chunks(
    name: str, state: State, features: Logits | None, member_logits: Logits, temperature: float = 1.0
) -> FloatArray:
    """Returns the scores `[n]` of an ensemble's features `[M,n,D']` and logits `[M,n,C]`, in float64, some at a time.

    Args:
        state: what was fitted, with the members first.
        features: None for a score of answers.
    """
    import torch

    from hydractl.model.ood_head import ood_score

    parts = []
    for start in range(0, member_logits.shape[1], CHUNK):
        logits, read = (
            torch.from_numpy(np.asarray(values[:, start : start + CHUNK], np.float64, order="C"))
            for values in (member_logits, member_logits[..., :0] if features is None else features)
        )
        parts.append(ood_score(name, state, read, logits, temperature=temperature).numpy())
    return np.concatenate(parts)
