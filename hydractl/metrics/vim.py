"""Virtual-logit matching: how much of a feature lies where ID features hardly vary."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from hydractl.errors import DataError
from hydractl.metrics.checks import FloatArray
from hydractl.metrics.ood_scores import Detector, MemberSamples


def fit_vim(samples: MemberSamples) -> Detector:
    """alpha |R^T (x - o)| - logsumexp(z): a virtual logit against the logits.

    o is the point at which all logits are equal but for what the classifier cannot reach, -W^+ b. R spans the
    directions beyond the principal ones of the ID features around o, and alpha makes the virtual logit of ID samples as
    large as their largest logit, on average.

    Raises:
        DataError: no more samples than principal directions, so that none varies beyond them.

    Source: Wang et al. 2022, section 4, as OpenOOD 1.5 computes it.
    """
    count, width = samples.features.shape
    if count <= (principal := principal_dimensions(width)):
        raise DataError(
            f"the calibration data holds {count} samples: vim needs more than the {principal} principal directions of "
            f"{width} features"
        )
    weight, bias = samples.classifier()
    origin = -np.linalg.pinv(weight) @ bias
    centred = samples.features - origin
    _, directions = np.linalg.eigh(centred.T @ centred / count)  # by ascending variance
    rest = directions[:, : width - principal]
    alpha = samples.logits.max(axis=-1).mean() / np.linalg.norm(centred @ rest, axis=-1).mean()

    def detect(features: FloatArray, logits: FloatArray) -> FloatArray:
        virtual = alpha * np.linalg.norm((features - origin) @ rest, axis=-1)
        return np.asarray(virtual - logsumexp(logits, axis=-1))

    return detect


def principal_dimensions(width: int) -> int:
    """How many directions of features of this width count as principal.

    Source: Wang et al. 2022, appendix: 1000 of 2048 and 512 of 768; half of narrower ones, which it does not treat.
    """
    return 1000 if width >= 2048 else 512 if width >= 768 else width // 2
