"""Virtual-logit matching: the part of the features outside their principal space, against the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydractl.errors import DataError
from hydractl.ood.score import Fitted, MemberSamples, OodScore, Outputs, State, each_member

if TYPE_CHECKING:
    from torch import Tensor


def fit_vim(samples: MemberSamples) -> Fitted:
    """Fits the directions beyond the principal ones of the ID features, and the scale of the virtual logit.

    The origin is the point at which all logits are equal but for what the classifier cannot reach, -W^+ b. The scale
    alpha makes the virtual logit of ID samples as large as their largest logit, on average.

    Raises:
        DataError: no more samples than principal directions.

    Source: Wang et al. 2022, section 4, as OpenOOD 1.5 computes it.
    """
    import numpy as np

    count, width = samples.features.shape
    if count <= (principal := principal_dimensions(width)):
        raise DataError(
            f"{count} samples to fit on: vim needs more than the {principal} principal directions of {width} features: "
            "give more data"
        )
    weight, bias = samples.classifier()
    origin = -np.linalg.pinv(weight) @ bias
    centred = samples.features - origin
    _, directions = np.linalg.eigh(centred.T @ centred / count)  # by ascending variance
    rest = directions[:, : width - principal]
    alpha = samples.logits.max(axis=-1).mean() / np.linalg.norm(centred @ rest, axis=-1).mean()
    return {"origin": origin, "rest": rest, "alpha": np.array([alpha])}


def principal_dimensions(width: int) -> int:
    """Returns how many directions of features of this width count as principal.

    Source: Wang et al. 2022, appendix: 1000 of 2048 and 512 of 768; half of narrower ones, which it does not treat.
    """
    return 1000 if width >= 2048 else 512 if width >= 768 else width // 2


def vim(state: State, answers: Outputs) -> Tensor:
    """Returns alpha |R^T (x - o)| - logsumexp(z): a virtual logit against the logits, mean over members.

    State: `origin` o `[M,D']`, `rest` R `[M,D',D'-p]`, `alpha` `[M,1]`.
    """
    beyond = (answers.read() - state["origin"].unsqueeze(-2)) @ state["rest"]
    return (state["alpha"] * beyond.norm(dim=-1) - answers.member_logits.logsumexp(-1)).mean(0)


VIM = OodScore(
    "vim",
    "length of the features outside their principal space, as a logit, plus the free energy, mean over members",
    "Wang et al. 2022",
    vim,
    "features",
    each_member(fit_vim),
    {"origin": "MD", "rest": "MDR", "alpha": "M1"},
)
