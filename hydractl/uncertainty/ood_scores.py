"""Scores of how far from the training distribution a sample looks: higher = more OOD, for all of them."""

from typing import Literal, assert_never

from hydractl.uncertainty.checks import FloatArray
from hydractl.uncertainty.table import PredictionTable

OodScore = Literal["msp", "entropy", "mutual-information", "max-logit", "energy"]


def ood_scores(table: PredictionTable, score: OodScore = "msp") -> FloatArray:
    """The score of each sample, [N] float64, higher = more OOD.

    msp: minus the largest mean probability. entropy: of the mean probability. mutual-information: entropy of
    the mean less mean entropy, 0 for one member. max-logit: minus the largest member-mean logit. energy: the
    free energy of the member-mean logits, -T logsumexp(z / T).

    Args:
        table: predictions of N samples.
        score: its name.

    Source: msp Hendrycks & Gimpel 2017, max-logit Hendrycks et al. 2022, energy Liu et al. 2020.
    """
    match score:
        case "msp":
            return -table.msp
        case "entropy":
            return table.entropy
        case "mutual-information":
            return table.mutual_information
        case "max-logit":
            return -table.max_logit
        case "energy":
            return table.energy
    assert_never(score)
