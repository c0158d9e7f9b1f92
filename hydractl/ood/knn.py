"""The distance of features to their neighbours among calibration samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydractl.errors import DataError
from hydractl.ood.mahalanobis import normalised
from hydractl.ood.score import Fitted, MemberSamples, OodScore, Outputs, State, each_left_out, each_member
from hydractl.ood.statistics import unit_length

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

NEIGHBOURS = 50  # it looks at that many rows of its bank at most


def fit_knn(samples: MemberSamples) -> Fitted:
    """Keeps the features of all samples, at unit length, and K, which is 50, or the size of the smallest class.

    Beyond its class an ID sample has neighbours of other classes, which lie farther from it than from OOD samples.

    Raises:
        DataError: fewer than 50 samples.

    Source: Sun et al. 2022, as OpenOOD 1.5 computes it with its K of 50.
    """
    import numpy as np

    if len(samples.features) < NEIGHBOURS:
        raise DataError(
            f"{len(samples.features)} samples to fit on: knn needs {NEIGHBOURS} at least, to find the {NEIGHBOURS}th "
            "nearest: give more data"
        )
    smallest = np.bincount(_classes(samples)).min()
    return {"bank": unit_length(samples.features), "nearest": np.array([min(NEIGHBOURS, smallest)], np.float64)}


def _classes(samples: MemberSamples) -> NDArray[np.int64]:
    """Returns the class of each sample, as labelled or else as predicted, numbered without gaps."""
    import numpy as np

    labels = samples.logits.argmax(-1) if samples.labels is None else samples.labels
    return np.unique(labels, return_inverse=True)[1]


def _left_out(samples: MemberSamples) -> NDArray[np.float64]:
    """Returns the scores `[N]` of calibration samples by a bank without them."""
    import numpy as np

    unit = unit_length(samples.features)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    most = min(NEIGHBOURS, len(unit) - 1)
    ordered = -np.sort(np.partition(-similarity, most - 1, axis=-1)[:, :most], axis=-1)
    classes = _classes(samples)
    counts = np.bincount(classes)
    first, second = np.partition(np.append(counts, [most] * 2), 1)[:2]
    # Without a sample of the smallest class that is one smaller; a class of one sample is none then.
    smallest = np.where(counts[classes] == first, first - 1 or second, first)
    return np.asarray(2 - 2 * np.take_along_axis(ordered, smallest.clip(1, most)[:, None] - 1, -1)[:, 0])


def knn(state: State, answers: Outputs) -> Tensor:
    """Returns the squared distance of x / |x| to the Kth nearest row of the bank, mean over members.

    State: `bank` `[M,N,D']`, rows of unit length; `nearest` K `[M,1]`, from 1 to 50.
    """
    similarity = normalised(answers.read()) @ state["bank"].mT
    ordered = similarity.topk(NEIGHBOURS, dim=-1).values
    last = state["nearest"].long().clamp(1, NEIGHBOURS).unsqueeze(-1) - 1  # [M,1,1]
    return (2 - 2 * ordered.gather(-1, last.expand(-1, ordered.shape[1], -1)).squeeze(-1)).mean(0)


KNN = OodScore(
    "knn",
    "squared distance of unit-length features to the 50th nearest calibration sample, or as many as the smallest class "
    "has, mean over members",
    "Sun et al. 2022",
    knn,
    "features",
    each_member(fit_knn),
    {"bank": "MND", "nearest": "M1"},
    left_out=each_left_out(_left_out),
)
