"""Distance of features to those of the calibration samples."""

from __future__ import annotations

import numpy as np
from sklearn.neighbors import NearestNeighbors

from hydractl.errors import DataError
from hydractl.metrics.checks import FloatArray
from hydractl.metrics.ood_scores import Detector, MemberSamples

NEIGHBOURS = 50


def fit_knn(samples: MemberSamples) -> Detector:
    """Squared distance of x / |x| to the 50th nearest of the calibration samples; it keeps the features of them all.

    Raises:
        DataError: fewer than 50 samples.

    Source: Sun et al. 2022, as OpenOOD 1.5 computes it with its K of 50.
    """
    if len(samples.features) < NEIGHBOURS:
        raise DataError(
            f"the calibration data holds {len(samples.features)} samples: knn needs {NEIGHBOURS} at least, to find the "
            f"{NEIGHBOURS}th nearest"
        )
    neighbours = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(_unit(samples.features))

    def detect(features: FloatArray, _logits: FloatArray) -> FloatArray:
        distances, _ = neighbours.kneighbors(_unit(features))
        return np.square(np.asarray(distances[:, -1], dtype=np.float64))

    return detect


def _unit(features: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(features, axis=-1, keepdims=True)
    return np.asarray(features / np.maximum(lengths, np.finfo(np.float64).tiny))
