"""The distance of features to their neighbours among calibration samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydractl.errors import DataError
from hydractl.ood.mahalanobis import normalised
from hydractl.ood.score import Answers, Fitted, MemberSamples, OodScore, State, each_left_out, each_member
from hydractl.ood.statistics import unit_length

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

NEIGHBOURS = 50  # it looks at that many rows of its bank


def fit_knn(samples: MemberSamples) -> Fitted:
    """Keeps the features of all samples, at unit length.

    Raises:
        DataError: fewer than 50 samples.

    Source: Sun et al. 2022, as OpenOOD 1.5 computes it with its K of 50.
    """
    if len(samples.features) < NEIGHBOURS:
        raise DataError(
            f"{len(samples.features)} samples to fit on: knn needs {NEIGHBOURS} at least, to find the {NEIGHBOURS}th "
            "nearest: give more data"
        )
    return {"bank": unit_length(samples.features)}


def _left_out(samples: MemberSamples) -> NDArray[np.float64]:
    """Returns the scores `[N]` of calibration samples by a bank without them."""
    import numpy as np

    unit = unit_length(samples.features)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    kept = min(NEIGHBOURS, len(unit) - 1)
    return np.asarray(2 - 2 * np.partition(similarity, -kept, axis=-1)[:, -kept])


def knn(state: State, answers: Answers) -> Tensor:
    """Returns the squared distance of x / |x| to the 50th nearest row of the bank, mean over members.

    State: `bank` `[M,N,D']`, rows of unit length.
    """
    similarity = normalised(answers.read()) @ state["bank"].mT
    return (2 - 2 * similarity.topk(NEIGHBOURS, dim=-1).values[..., -1]).mean(0)


KNN = OodScore(
    "knn",
    "squared distance of unit-length features to the 50th nearest calibration sample, mean over members",
    "Sun et al. 2022",
    knn,
    "features",
    each_member(fit_knn),
    {"bank": "MND"},
    left_out=each_left_out(_left_out),
)
