"""The sum over layers of Mahalanobis distances: what one layer misses, another sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydractl.errors import DataError
from hydractl.ood.score import Answers, FitSamples, Fitted, OodScore, State
from hydractl.ood.statistics import left_out_distances, whitening

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

LEAST = 8  # samples to fit on


def fit_layers(samples: FitSamples) -> Fitted:
    """Fits a Gaussian to the mean token of each hidden layer, and one to what the classifier reads; no labels.

    Layers that members share are fitted once.

    Raises:
        DataError: fewer than 8 samples.

    Source: Lee et al. 2018, section 2.2, without its perturbation; one Gaussian a layer in place of class means.
    """
    import numpy as np

    if samples.samples < LEAST:
        raise DataError(f"{samples.samples} samples to fit on: all-layers needs {LEAST} at least: give more data")
    hidden = [_gaussian(rows) for layer in samples.hidden for rows in layer]
    last = [_gaussian(rows) for rows in samples.features]
    found = {}
    for name, each in (("hidden", hidden), ("last", last)):
        width = samples.features.shape[-1] if name == "last" or not hidden else hidden[0][0].shape[-1]
        means, whiten = zip(*each, strict=True) if each else ((), ())
        found[f"{name}_mean"] = np.reshape(means, (len(each), width))
        found[f"{name}_whiten"] = np.reshape(whiten, (len(each), width, width))
    return found


def _gaussian(rows: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the mean `[D]` and the whitening `[D,D]` of rows `[N,D]`."""
    wide = rows.astype("float64")
    mean = wide.mean(axis=0)
    return mean, whitening(wide - mean)


def left_out(samples: FitSamples) -> NDArray[np.float64]:
    """Returns what `by_layer` gives for each sample by a fit on all others, `[L,N]`."""
    import numpy as np

    layers = [*samples.hidden, samples.features]
    return np.stack([np.mean([left_out_distances(rows.astype("float64")) for rows in each], 0) for each in layers])


def by_layer(state: State, answers: Answers) -> Tensor:
    """Returns the squared distance in each layer, mean over members, `[L,B]`.

    State: `hidden_mean` `[S,D]` and `hidden_whiten` `[S,D,D]`, the copies of one hidden layer after the other;
    `last_mean` `[M,D']` and `last_whiten` `[M,D',D']`.
    """
    import torch

    found, start = [], 0
    parts = [*((layer, "hidden") for layer in answers.hidden), (answers.read(), "last")]
    for layer, name in parts:
        copies = slice(start, start + len(layer)) if name == "hidden" else slice(None)
        mean, whiten = state[f"{name}_mean"][copies], state[f"{name}_whiten"][copies]
        found.append(((layer - mean.unsqueeze(-2)) @ whiten).square().sum(-1).mean(0))
        start += len(layer)
    return torch.stack(found)


ALL_LAYERS = OodScore(
    "all-layers",
    "sum over layers of the squared Mahalanobis distance to the mean of all calibration samples, mean over members",
    "Lee et al. 2018, without labels",
    lambda state, answers: by_layer(state, answers).sum(0),
    "layers",
    fit_layers,
    {"hidden_mean": "Sd", "hidden_whiten": "Sdd", "last_mean": "MD", "last_whiten": "MDD"},
    by_layer=by_layer,
    left_out=left_out,
    half=frozenset({"hidden_whiten", "last_whiten"}),
)
