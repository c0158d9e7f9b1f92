"""The score over all layers and, at half their weight, the last one: what one layer misses, another sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydractl.errors import DataError
from hydractl.ood.mahalanobis import fit_members, left_out_to_nearest, normalised, to_nearest
from hydractl.ood.score import FitSamples, Fitted, OodScore, Outputs, State
from hydractl.ood.statistics import left_out_distances, unit_length, whitening

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

LEAST = 3  # samples to fit on
SMALLEST = 1e-30  # distance whose logarithm is taken
NEAR = 0.5  # weight of the last layer beside that of all layers


def fit_layers(samples: FitSamples) -> Fitted:
    """Fits a Gaussian to the mean token of each hidden layer, and one to what the classifier reads; no labels.

    These vectors have length 1. What the classifier reads has a second fit, as it is, with class means: near classes
    differ there alone. Its classes are those that the network predicts. One that it never predicts has no mean, and
    where answers are not one class, all samples have one. Layers that members share are fitted once. Logarithms of
    distances, and the sum of those of all layers, have their means and deviations over samples that no fit knows.

    Raises:
        DataError: fewer than 3 samples.

    Source: Lee et al. 2018, section 2, without its perturbation; length 1 from Müller & Hein 2025.
    """
    import numpy as np

    if samples.samples < LEAST:
        raise DataError(f"layers needs at least {LEAST} samples to fit on, not {samples.samples}: give more data")
    location, scale = _standards(samples, _left_out_logarithms(samples))
    fitted = {"location": location, "scale": scale}
    for name, rows in (("hidden", [copy for layer in samples.hidden for copy in layer]), ("last", samples.features)):
        width = (rows[0] if len(rows) else samples.features).shape[-1]
        each = [_gaussian(row) for row in rows]
        fitted[f"{name}_mean"] = np.reshape([mean for mean, _ in each], (len(each), width))
        fitted[f"{name}_whiten"] = np.reshape([whiten for _, whiten in each], (len(each), width, width))
    return {**fitted, **fit_members(samples.features, samples.classes)}


def _standards(samples: FitSamples, logarithms: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns what is taken from logarithms `[L+1,N]`, and what then divides them, so that their sum is the score.

    Each mean costs a degree of freedom. The distance to classes counts by the share that is left, so that of classes
    with a sample or two it counts next to nothing.
    """
    import numpy as np

    location, deviation = logarithms.mean(axis=-1), logarithms.std(axis=-1)
    deviation = np.where(deviation > 0, deviation, 1)
    layers = ((logarithms - location[:, None]) / deviation[:, None])[:-1].sum(axis=0).std()
    count, classes = samples.samples, 1 + samples.classes.max()
    weight = NEAR * max(count - classes, 1) / count
    return location, deviation * np.append(np.full(len(location) - 1, layers if layers > 0 else 1), 1 / weight)


def _gaussian(rows: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the mean `[D]` and the whitening `[D,D]` of rows `[N,D]` at length 1."""
    unit = unit_length(rows.astype("float64"))
    mean = unit.mean(axis=0)
    return mean, whitening(unit - mean)


def _left_out_logarithms(samples: FitSamples) -> NDArray[np.float64]:
    """Returns the logarithm of each sample's distance in each layer, and to classes, by fits on others, `[L+1,N]`."""
    import numpy as np

    layers = [*samples.hidden, samples.features]
    each = [[left_out_distances(unit_length(rows.astype("float64"))) for rows in copies] for copies in layers]
    near = [left_out_to_nearest(rows.astype("float64"), samples.classes) for rows in samples.features]
    return np.log(np.maximum([np.mean(distances, axis=0) for distances in (*each, near)], SMALLEST))


def _left_out(samples: FitSamples) -> NDArray[np.float64]:
    """Returns what `parts` gives for each sample by a fit on all others, `[L+1,N]`."""
    logarithms = _left_out_logarithms(samples)
    location, scale = _standards(samples, logarithms)
    return (logarithms - location[:, None]) / scale[:, None]


def _distances(x: Tensor, mean: Tensor, whiten: Tensor) -> Tensor:
    """Returns squared distances `[S,B]` of `[S,B,D]` at length 1; all copies of all layers in one product."""
    return ((normalised(x) - mean.unsqueeze(-2)) @ whiten).square().sum(-1)


def parts(state: State, answers: Outputs) -> Tensor:
    """Returns (log d - m) / s of each layer, and of the classifier's input to the nearest class, `[L+1,B]`.

    d is a squared distance, mean over members.

    State: `hidden_mean` `[S,D]` and `hidden_whiten` `[S,D,D]`, the copies of one hidden layer after the other;
    `last_mean` `[M,D']` and `last_whiten` `[M,D',D']`; as for `to_nearest`; `location` m and `scale` s `[L+1]`.
    """
    import torch

    squared = [_distances(answers.read(), state["last_mean"], state["last_whiten"])]
    if answers.hidden:
        every = _distances(torch.cat([*answers.hidden]), state["hidden_mean"], state["hidden_whiten"])
        squared = [*every.split([len(layer) for layer in answers.hidden]), *squared]
    squared = [distances.mean(0) for distances in (*squared, to_nearest(state, answers.read()))]
    logarithms = torch.stack(squared).clamp(min=SMALLEST).log()
    return (logarithms - state["location"].unsqueeze(-1)) / state["scale"].unsqueeze(-1)


LAYERS = OodScore(
    "layers",
    "logarithms of Mahalanobis distances, standardised: sum over layers of those to the mean of all calibration "
    "samples, and half of that of the features to the nearest mean of predicted classes",
    "Lee et al. 2018, without labels",
    lambda state, answers: parts(state, answers).sum(0),
    "layers",
    fit_layers,
    {
        "hidden_mean": "Sd",
        "hidden_whiten": "Sdd",
        "last_mean": "MD",
        "last_whiten": "MDD",
        "center": "MD",
        "whiten": "MDD",
        "means": "MKD",
        "location": "P",
        "scale": "P",
    },
    parts=parts,
    left_out=_left_out,
    half=frozenset({"hidden_whiten", "last_whiten"}),
)
