"""The score over all layers: what one layer misses, another sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydractl.errors import DataError
from hydractl.ood.mahalanobis import normalised
from hydractl.ood.score import FitSamples, Fitted, OodScore, Outputs, State
from hydractl.ood.statistics import left_out_distances, unit_length, whitening

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

LEAST = 3  # samples to fit on
SMALLEST = 1e-30  # distance whose logarithm is taken


def fit_layers(samples: FitSamples) -> Fitted:
    """Fits a Gaussian to the mean token of each hidden layer, and one to what the classifier reads; no labels.

    Vectors have length 1. Layers that members share are fitted once. The logarithm of the distance in each layer has
    its mean and deviation over samples that the Gaussian does not know.

    Raises:
        DataError: fewer than 3 samples.

    Source: Lee et al. 2018, section 2.2, without its perturbation and with one Gaussian in place of class means;
    length 1 from Müller & Hein 2025.
    """
    import numpy as np

    if samples.samples < LEAST:
        raise DataError(f"{samples.samples} samples to fit on: all-layers needs {LEAST} at least: give more data")
    logarithms = _left_out_logarithms(samples)
    deviation = logarithms.std(axis=-1)
    fitted = {"location": logarithms.mean(axis=-1), "scale": np.where(deviation > 0, deviation, 1)}
    for name, rows in (("hidden", [copy for layer in samples.hidden for copy in layer]), ("last", samples.features)):
        width = (rows[0] if len(rows) else samples.features).shape[-1]
        each = [_gaussian(row) for row in rows]
        fitted[f"{name}_mean"] = np.reshape([mean for mean, _ in each], (len(each), width))
        fitted[f"{name}_whiten"] = np.reshape([whiten for _, whiten in each], (len(each), width, width))
    return fitted


def _gaussian(rows: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the mean `[D]` and the whitening `[D,D]` of rows `[N,D]` at length 1."""
    unit = unit_length(rows.astype("float64"))
    mean = unit.mean(axis=0)
    return mean, whitening(unit - mean)


def _left_out_logarithms(samples: FitSamples) -> NDArray[np.float64]:
    """Returns the logarithm of each sample's distance in each layer by a fit on all others, `[L,N]`."""
    import numpy as np

    layers = [*samples.hidden, samples.features]
    each = [[left_out_distances(unit_length(rows.astype("float64"))) for rows in copies] for copies in layers]
    return np.log(np.maximum([np.mean(distances, axis=0) for distances in each], SMALLEST))


def _left_out(samples: FitSamples) -> NDArray[np.float64]:
    """Returns what `by_layer` gives for each sample by a fit on all others, `[L,N]`."""
    logarithms = _left_out_logarithms(samples)
    deviation = logarithms.std(axis=-1, keepdims=True)
    return (logarithms - logarithms.mean(axis=-1, keepdims=True)) / (deviation + (deviation == 0))


def _distances(x: Tensor, mean: Tensor, whiten: Tensor) -> Tensor:
    """Returns squared distances `[S,B]` of `[S,B,D]` at length 1; all copies of all layers in one product."""
    return ((normalised(x) - mean.unsqueeze(-2)) @ whiten).square().sum(-1)


def by_layer(state: State, answers: Outputs) -> Tensor:
    """Returns (log d - m) / s of each layer, `[L,B]`: d is the squared distance, mean over members.

    State: `hidden_mean` `[S,D]` and `hidden_whiten` `[S,D,D]`, the copies of one hidden layer after the other;
    `last_mean` `[M,D']` and `last_whiten` `[M,D',D']`; `location` m and `scale` s `[L]`.
    """
    import torch

    squared = [_distances(answers.read(), state["last_mean"], state["last_whiten"])]
    if answers.hidden:
        every = _distances(torch.cat([*answers.hidden]), state["hidden_mean"], state["hidden_whiten"])
        squared = [*every.split([len(layer) for layer in answers.hidden]), *squared]
    squared = [distances.mean(0) for distances in squared]
    logarithms = torch.stack(squared).clamp(min=SMALLEST).log()
    return (logarithms - state["location"].unsqueeze(-1)) / state["scale"].unsqueeze(-1)


ALL_LAYERS = OodScore(
    "all-layers",
    "sum over layers of the logarithm, standardised, of the Mahalanobis distance to the mean of all calibration "
    "samples, mean over members",
    "Lee et al. 2018, without labels",
    lambda state, answers: by_layer(state, answers).sum(0),
    "layers",
    fit_layers,
    {
        "hidden_mean": "Sd",
        "hidden_whiten": "Sdd",
        "last_mean": "MD",
        "last_whiten": "MDD",
        "location": "L",
        "scale": "L",
    },
    by_layer=by_layer,
    left_out=_left_out,
    half=frozenset({"hidden_whiten", "last_whiten"}),
)
