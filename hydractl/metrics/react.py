"""Energy of rectified features: what is unusually large in them no longer makes a network sure."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from hydractl.metrics.checks import FloatArray
from hydractl.metrics.ood_scores import Detector, MemberSamples

PERCENTILE = 90


def fit_react(samples: MemberSamples) -> Detector:
    """-logsumexp(W min(x, t) + b), with t the 90th percentile of all numbers in the ID features.

    Source: Sun et al. 2021, equation 4, as OpenOOD 1.5 computes it with its percentile of 90.
    """
    weight, bias = samples.classifier()
    threshold = np.percentile(samples.features, PERCENTILE)

    def detect(features: FloatArray, _logits: FloatArray) -> FloatArray:
        return np.asarray(-logsumexp(np.minimum(features, threshold) @ weight.T + bias, axis=-1))

    return detect
