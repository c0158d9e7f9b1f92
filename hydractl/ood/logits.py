"""OOD scores that read the logits of the whole ensemble and fit nothing."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from hydractl.ood.score import Answers, OodScore, State

if TYPE_CHECKING:
    from torch import Tensor

EXPONENT, TOP_CLASSES = 0.1, 100  # of the generalised entropy


def probabilities(answers: Answers) -> Tensor:
    """Returns the mean of the members' softmax probabilities, `[B,C]`."""
    own = (answers.member_logits / answers.temperature).log_softmax(-1)
    return (own[0] if len(own) == 1 else own.logsumexp(0) - log(len(own))).exp()


def entropy(_state: State, answers: Answers) -> Tensor:
    """Returns the entropy of the mean probability, nats."""
    import torch

    return torch.special.entr(probabilities(answers)).sum(-1)


def mutual_information(state: State, answers: Answers) -> Tensor:
    """Returns the entropy of the mean probability less the mean entropy of the members, nats, never below 0."""
    import torch

    expected = torch.special.entr((answers.member_logits / answers.temperature).softmax(-1)).sum(-1).mean(0)
    return (entropy(state, answers) - expected).clamp(min=0)


def energy(_state: State, answers: Answers) -> Tensor:
    """Returns -T logsumexp(z / T) of the members' mean logits z."""
    mean = answers.member_logits.mean(0) / answers.temperature
    return -answers.temperature * mean.logsumexp(-1)


def generalised_entropy(_state: State, answers: Answers) -> Tensor:
    """Returns sum_c p_c^g (1 - p_c)^g, g = 0.1, over the 100 likeliest classes.

    Source: Liu et al. 2023, equation 4, with the exponent and the number of classes of OpenOOD 1.5.
    """
    p = probabilities(answers)
    likeliest = p.topk(min(TOP_CLASSES, p.shape[-1])).values
    return (likeliest**EXPONENT * (1 - likeliest).clamp(min=0) ** EXPONENT).sum(-1)


MSP = OodScore(
    "msp",
    "minus the maximum softmax probability of the members' mean",
    "Hendrycks & Gimpel 2017",
    lambda _state, answers: -probabilities(answers).amax(-1),
)
ENTROPY = OodScore("entropy", "entropy of the members' mean probability, nats", "Lakshminarayanan et al. 2017", entropy)
MUTUAL_INFORMATION = OodScore(
    "mutual-information",
    "entropy of the mean less mean entropy of the members, nats; 0 for one member",
    "Depeweg et al. 2018",
    mutual_information,
)
MAX_LOGIT = OodScore(
    "max-logit",
    "minus the largest logit of the members' mean logits, before the temperature",
    "Hendrycks et al. 2022",
    lambda _state, answers: -answers.member_logits.mean(0).amax(-1),
)
ENERGY = OodScore("energy", "free energy -T logsumexp(z / T) of the members' mean logits", "Liu et al. 2020", energy)
GEN = OodScore(
    "gen",
    "generalised entropy of the members' mean probability over the 100 likeliest classes, exponent 0.1",
    "Liu et al. 2023",
    generalised_entropy,
)
