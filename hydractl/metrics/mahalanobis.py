"""Mahalanobis distance of features to the means of the classes."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from hydractl.errors import DataError
from hydractl.metrics.checks import FloatArray
from hydractl.metrics.ood_scores import Detector, MemberSamples


def fit_mahalanobis(samples: MemberSamples) -> Detector:
    """min over classes c of (x - mean_c)^T P (x - mean_c), with P the pseudo-inverse of the covariance within classes.

    All classes share one covariance. Of fewer samples than features it knows some directions only, and the
    pseudo-inverse counts no distance along the others.

    Raises:
        DataError: a class has no samples.

    Source: Lee et al. 2018, equations 1 and 2, as OpenOOD 1.5 computes it (`mds`).
    """
    classes = samples.logits.shape[1]
    counts = np.bincount(samples.labels, minlength=classes)
    if not counts.all():
        raise DataError(
            f"the calibration data holds no samples of class {int(np.argmin(counts))}: mahalanobis needs the mean of "
            "each class"
        )
    sums = np.zeros((classes, samples.features.shape[1]))
    np.add.at(sums, samples.labels, samples.features)
    means = sums / counts[:, None]
    whiten = _whitening(samples.features - means[samples.labels])
    white_means = means @ whiten

    def detect(features: FloatArray, _logits: FloatArray) -> FloatArray:
        return np.asarray(cdist(features @ whiten, white_means, "sqeuclidean").min(axis=-1))

    return detect


def _whitening(centred: FloatArray) -> FloatArray:
    """`[D',rank]`: V, where V V^T is the pseudo-inverse of the covariance."""
    variances, directions = np.linalg.eigh(centred.T @ centred / len(centred))
    known = variances > variances[-1] * len(variances) * np.finfo(np.float64).eps
    return np.asarray(directions[:, known] / np.sqrt(variances[known]))
