"""OOD scores computed on tensors, and the head that gives them with a network's answers.

Every score of features takes what was fitted for each member, its features and its logits, and returns a score for
each member and sample, higher = more OOD. `hydractl.metrics.feature_scores` fits. Scores of answers take all members'
logits, with the numbers of `hydractl.metrics.ood_scores`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.checkpoint.ood import NEIGHBOURS, QUANTILES, FittedOod, OodFit
from hydractl.model.prediction import log_probabilities

#: Fitted numbers by name, each with the members first.
State = Mapping[str, Tensor]
#: From a state, features `[M,B,D']` and logits `[M,B,C]` before the temperature to scores `[M,B]`.
Detector = Callable[[State, Tensor, Tensor], Tensor]
#: From logits `[M,B,C]` before the temperature, and the temperature, to scores `[B]`.
AnswerScore = Callable[[Tensor, float], Tensor]

EXPONENT, TOP_CLASSES = 0.1, 100  # of the generalised entropy


def mahalanobis(state: State, features: Tensor, _logits: Tensor) -> Tensor:
    """Returns min over classes c of (x - mean_c)^T P (x - mean_c), with P = `whiten` `whiten`^T.

    State: `center` `[M,D']`, `whiten` `[M,D',D']`, `means` `[M,C,D']`, the class means less `center`, whitened.
    """
    white = (features - state["center"].unsqueeze(-2)) @ state["whiten"]
    means = state["means"]
    products = white @ means.mT  # [M,B,C]
    lengths = white.square().sum(-1, keepdim=True) + means.square().sum(-1).unsqueeze(-2)
    return (lengths - 2 * products).clamp(min=0).amin(-1)


def relative_mahalanobis(state: State, features: Tensor, logits: Tensor) -> Tensor:
    """Returns the Mahalanobis distance to the nearest class less that to all samples as one class.

    State: as `mahalanobis`, and `background` `[M,D',D']`, which whitens all samples around `center`.
    """
    # The distances are far larger than their difference, which needs float64; MPS has none.
    wide = features.dtype if features.device.type == "mps" else torch.float64
    state = {name: tensor.to(wide) for name, tensor in state.items()}
    around = ((features.to(wide) - state["center"].unsqueeze(-2)) @ state["background"]).square().sum(-1)
    return (mahalanobis(state, features.to(wide), logits) - around).to(features.dtype)


def knn(state: State, features: Tensor, _logits: Tensor) -> Tensor:
    """Returns the squared distance of x / |x| to the 50th nearest row of the bank.

    State: `bank` `[M,N,D']`, rows of unit length.
    """
    similarity = F.normalize(features, dim=-1, eps=1e-30) @ state["bank"].mT
    return 2 - 2 * similarity.topk(NEIGHBOURS, dim=-1).values[..., -1]


def vim(state: State, features: Tensor, logits: Tensor) -> Tensor:
    """Returns alpha |R^T (x - o)| - logsumexp(z): a virtual logit against the logits.

    State: `origin` o `[M,D']`, `rest` R `[M,D',D'-p]`, `alpha` `[M,1]`.
    """
    beyond = (features - state["origin"].unsqueeze(-2)) @ state["rest"]
    return state["alpha"] * beyond.norm(dim=-1) - logits.logsumexp(-1)


def react(state: State, features: Tensor, _logits: Tensor) -> Tensor:
    """Returns -logsumexp(W min(x, t) + b).

    State: `threshold` t `[M,1]`, `weight` W `[M,C,D']`, `bias` b `[M,C]`.
    """
    clipped = features.minimum(state["threshold"].unsqueeze(-1))
    return -(clipped @ state["weight"].mT + state["bias"].unsqueeze(-2)).logsumexp(-1)


def combined(state: State, features: Tensor, logits: Tensor) -> Tensor:
    """Returns the sum of the free energy and the Mahalanobis distance, each standardised on ID samples.

    State: as `mahalanobis`, and `location` and `scale` `[M,2]` of the two.
    """
    parts = (-logits.logsumexp(-1), mahalanobis(state, features, logits))
    location, scale = state["location"], state["scale"]
    first, second = ((part - location[:, i, None]) / scale[:, i, None] for i, part in enumerate(parts))
    return first + second


DETECTORS: Mapping[str, Detector] = {
    "react": react,
    "mahalanobis": mahalanobis,
    "relative-mahalanobis": relative_mahalanobis,
    "vim": vim,
    "knn": knn,
    "combined": combined,
}


def _entropy(logits: Tensor, temperature: float) -> Tensor:
    return torch.special.entr(log_probabilities(logits, temperature).exp()).sum(-1)


def _mutual_information(logits: Tensor, temperature: float) -> Tensor:
    expected = torch.special.entr((logits / temperature).softmax(-1)).sum(-1).mean(0)
    return (_entropy(logits, temperature) - expected).clamp(min=0)


def generalised_entropy(probabilities: Tensor) -> Tensor:
    """Returns sum_c p_c^g (1 - p_c)^g, g = 0.1, over the 100 likeliest classes of `[B,C]`.

    Source: Liu et al. 2023, equation 4, with the exponent and the number of classes of OpenOOD 1.5.
    """
    likeliest = probabilities.topk(min(TOP_CLASSES, probabilities.shape[-1])).values
    return (likeliest**EXPONENT * (1 - likeliest).clamp(min=0) ** EXPONENT).sum(-1)


ANSWER_SCORES: Mapping[str, AnswerScore] = {
    "msp": lambda logits, temperature: -log_probabilities(logits, temperature).exp().amax(-1),
    "entropy": _entropy,
    "mutual-information": _mutual_information,
    "max-logit": lambda logits, _temperature: -logits.mean(0).amax(-1),
    "energy": lambda logits, temperature: -temperature * (logits.mean(0) / temperature).logsumexp(-1),
    "gen": lambda logits, temperature: generalised_entropy(log_probabilities(logits, temperature).exp()),
}


def ood_score(name: str, state: State, features: Tensor, logits: Tensor, temperature: float) -> Tensor:
    """Returns the score `[B]` of an ensemble, higher = more OOD: for features the mean over its members' detectors.

    Args:
        features: `[M,B,D']`; scores of answers do not read them.
        logits: `[M,B,C]`, before the temperature.
    """
    if name in ANSWER_SCORES:
        return ANSWER_SCORES[name](logits, temperature)
    return DETECTORS[name](state, features, logits).mean(0)


class OodHead(nn.Module):
    """Gives the OOD score of a calibrated network, and how typical it is of ID samples.

    What was fitted lies in buffers that move with the network.

    Attributes:
        fit: the score's name, and the share of ID samples that should not be flagged.
    """

    def __init__(self, fit: OodFit, state: State, persistent: bool = False) -> None:
        """
        Args:
            state: the score's numbers and `quantiles`.
            persistent: whether they are part of the state dict.
        """
        super().__init__()
        self.fit = fit
        for name, tensor in state.items():
            self.register_buffer(name, tensor, persistent)

    @classmethod
    def of(cls, fitted: FittedOod, device: torch.device | str, dtype: torch.dtype) -> OodHead:
        """Returns the head for a network of this dtype, in float32 at least."""
        wide = torch.promote_types(dtype, torch.float32)
        return cls(fitted.fit, {name: tensor.load().to(device, wide) for name, tensor in fitted.tensors.items()})

    def forward(self, features: Tensor, logits: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Returns the score and its typicality, both `[B]`.

        Args:
            features: `[M,B,D']`.
            logits: `[M,B,C]`, before the temperature.
        """
        state = dict(self.named_buffers())
        wide = state[QUANTILES].dtype
        score = ood_score(self.fit.score, state, features.to(wide), logits.to(wide), temperature=temperature)
        return score, typicality(score, state[QUANTILES])

    def flags(self, typical: Tensor) -> Tensor:
        """Returns where a sample looks OOD: less typical than all but the share of ID samples to accept."""
        return typical < 1 - self.fit.accept - 1e-6  # typicality has steps of 1/1001 or more


def typicality(score: Tensor, quantiles: Tensor) -> Tensor:
    """Returns (1 + #{calibration scores >= s}) / (n + 1), a conformal p-value, `[B]`.

    For exchangeable samples it is at most a with a probability of at most a.

    Args:
        score: s `[B]`.
        quantiles: `[n]` calibration scores.

    Source: Vovk et al. 2005.

    >>> typicality(torch.tensor([0.0, 2.5, 9.0]), torch.tensor([1.0, 2.0, 3.0])).tolist()
    [1.0, 0.5, 0.25]
    """
    as_odd = (quantiles >= score.unsqueeze(-1)).sum(-1)
    return (1 + as_odd).to(score.dtype) / (1 + len(quantiles))
