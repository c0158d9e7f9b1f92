"""OOD scores that read the logits of the whole ensemble and fit nothing.

Those of probabilities are logarithms, so that they tell inputs apart whose largest probability is 1 to the last digit.
"""

from __future__ import annotations

from math import inf, log
from typing import TYPE_CHECKING

from hydractl.ood.score import OodScore, Outputs, State

if TYPE_CHECKING:
    from torch import Tensor

CLOSE = -0.1  # log p from which it is computed from 1 - p


def member_logarithms(answers: Outputs) -> Tensor:
    """Returns the logarithms of the members' softmax probabilities, `[M,B,C]`."""
    return (answers.member_logits / answers.temperature).log_softmax(-1)


def mean_logarithms(members: Tensor) -> Tensor:
    """Returns the logarithms `[B,C]` of the mean of probabilities with logarithms `[M,B,C]`."""
    return members[0] if len(members) == 1 else members.logsumexp(0) - log(len(members))


def doubt(_state: State, answers: Outputs) -> Tensor:
    """Returns log(1 - max p) of the mean probability p, from the other classes."""
    p = mean_logarithms(member_logarithms(answers))
    return _others(p).squeeze(-1)


def _others(p: Tensor) -> Tensor:
    """Returns the logarithm `[...,1]` of the probability of all classes but the likeliest one."""
    return p.scatter(-1, p.argmax(-1, keepdim=True), -inf).logsumexp(-1, keepdim=True)


def _complements(p: Tensor) -> Tensor:
    """Returns log(1 - exp p) of logarithms of probabilities `[...,C]`."""
    return (-p.exp()).log1p().scatter(-1, p.argmax(-1, keepdim=True), _others(p))


def _log_entropy(p: Tensor) -> Tensor:
    """Returns the logarithm of the entropy `[...]` of logarithms of probabilities `[...,C]`."""
    import torch

    rest = _complements(p)
    close = torch.where(rest < -30, rest, (-(-rest.exp()).log1p()).log())  # of -log p
    return (p + torch.where(p > CLOSE, close, (-p).log())).logsumexp(-1)


def entropy(_state: State, answers: Outputs) -> Tensor:
    """Returns the logarithm of the entropy of the mean probability, in nats."""
    return _log_entropy(mean_logarithms(member_logarithms(answers)))


def mutual_information(_state: State, answers: Outputs) -> Tensor:
    """Returns log(H(mean p) - mean of H(p)) over members' probabilities p, in nats; 0 for a single member."""
    import torch

    members = member_logarithms(answers)
    if len(members) == 1:
        return torch.zeros_like(members[0, :, 0])
    total, expected = _log_entropy(mean_logarithms(members)), mean_logarithms(_log_entropy(members))
    return total + (-(expected - total).expm1()).clamp(min=torch.finfo(total.dtype).tiny).log()


def energy(_state: State, answers: Outputs) -> Tensor:
    """Returns -T logsumexp(z / T) of the members' mean logits z."""
    mean = answers.member_logits.mean(0) / answers.temperature
    return -answers.temperature * mean.logsumexp(-1)


MSP = OodScore("msp", "log(1 - the maximum softmax probability of the members' mean)", "Hendrycks & Gimpel 2017", doubt)
ENTROPY = OodScore(
    "entropy", "logarithm of the entropy of the members' mean probability", "Lakshminarayanan et al. 2017", entropy
)
MUTUAL_INFORMATION = OodScore(
    "mutual-information",
    "logarithm of the entropy of the mean minus the mean entropy of the members; 0 for one member",
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
