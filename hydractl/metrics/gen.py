"""Generalised entropy: a sum over classes that small probabilities weigh in more than in Shannon's."""

from __future__ import annotations

import numpy as np

from hydractl.metrics.checks import FloatArray
from hydractl.metrics.ood_scores import Answers
from hydractl.metrics.probabilities import mean_probabilities

EXPONENT = 0.1
TOP_CLASSES = 100


def generalised_entropy(answers: Answers) -> FloatArray:
    """sum_c p_c^g (1 - p_c)^g of the members' mean probabilities, g = 0.1, over the 100 likeliest classes, `[n]`.

    Source: Liu et al. 2023, equation 4, with the exponent and the number of classes of OpenOOD 1.5.
    """
    p = mean_probabilities(answers.member_logits, answers.temperature)
    likeliest = np.sort(p, axis=-1)[:, -TOP_CLASSES:]
    return np.asarray((likeliest**EXPONENT * (1 - likeliest) ** EXPONENT).sum(axis=-1))
