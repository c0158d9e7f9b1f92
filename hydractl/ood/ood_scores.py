"""All OOD scores: a choice by data takes the first that is within chance of the best."""

from hydractl.errors import OptionError
from hydractl.ood.layers import LAYERS
from hydractl.ood.logits import ENERGY, ENTROPY, MAX_LOGIT, MSP, MUTUAL_INFORMATION
from hydractl.ood.mahalanobis import MAHALANOBIS
from hydractl.ood.score import OodScore

OOD_SCORES: tuple[OodScore, ...] = (LAYERS, MSP, ENTROPY, MUTUAL_INFORMATION, MAX_LOGIT, ENERGY, MAHALANOBIS)
BASELINE = MSP.name  # what other scores are compared with
#: The score without OOD data to choose by.
DEFAULT = LAYERS.name


def find_ood_score(name: str) -> OodScore:
    """Returns the score of that name; raises OptionError if there is none."""
    for score in OOD_SCORES:
        if score.name == name:
            return score
    raise OptionError(f"`ood_score` {name}: expected {', '.join(score.name for score in OOD_SCORES)}")
