"""pytorch-ood's detectors, its own code, on the features and logits that `features` keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np
import torch
from features import Features
from torch import Tensor, nn

Array = np.ndarray
Scorer = Callable[[Features], Array]
CHUNK = 64  # it makes a matrix of all pairs of samples


def tensors(features: Features) -> tuple[Tensor, Tensor, Tensor]:
    """Returns pooled features, logits and labels."""
    pooled, logits = (torch.from_numpy(features[name].astype(float)) for name in ("pooled", "logits"))
    return pooled, logits, torch.from_numpy(features["labels"])


def by_layer(features: Features) -> list[Tensor]:
    """Returns the means of tokens after each layer, and the pooled features."""
    read = [*features["mean"].transpose(1, 0, 2)[1:], features["pooled"]]
    return [torch.from_numpy(x.astype(float)) for x in read]


def multi_mahalanobis(fit: Features) -> Scorer:
    """Fits its sum over layers; returns what scores features."""
    from pytorch_ood.detector import MultiMahalanobis

    read = by_layer(fit)
    fitted = MultiMahalanobis([nn.Identity()] * len(read)).fit_structured(read, tensors(fit)[2])

    def score(features: Features) -> Array:
        chunks = zip(*(x.split(CHUNK) for x in by_layer(features)), strict=True)
        return torch.cat([fitted.predict_structured(list(chunk)) for chunk in chunks]).numpy()

    return score


def on_pooled(name: str, fit: Features, weight: Tensor, bias: Tensor) -> Scorer:
    """Fits a detector of pooled features by its name; returns what scores features."""
    from pytorch_ood import detector as d

    head = nn.Linear(weight.shape[1], weight.shape[0])
    head.load_state_dict({"weight": weight, "bias": bias})
    pooled, _, labels = tensors(fit)
    made = {
        "Mahalanobis": lambda: d.Mahalanobis(None),
        "RMD": lambda: d.RMD(None),
        "ViM": lambda: d.ViM(None, d=min(weight.shape[1] // 2, 1000), w=weight, b=bias),
        "KNN": lambda: d.KNN(None),
        "SHE": lambda: d.SHE(None, head),
    }[name]()
    fitted = made.fit_features(pooled, labels)
    return lambda features: fitted.predict_features(tensors(features)[0]).detach().numpy()


def on_logits(name: str) -> Scorer:
    """Returns what scores features by logits alone."""
    from pytorch_ood import detector as d

    made = {"MaxSoftmax": d.MaxSoftmax, "EnergyBased": d.EnergyBased, "GEN": d.GEN, "MaxLogit": d.MaxLogit}[name](None)
    return lambda features: made.predict_logits(tensors(features)[1]).numpy()


def peers(fit: Features, weight: Tensor, bias: Tensor) -> Mapping[str, Scorer]:
    """Returns all that are compared, fitted in float64; a detector that these samples do not suit is left out."""
    torch.set_default_dtype(torch.float64)
    single = {}
    for name in ("Mahalanobis", "RMD", "ViM", "KNN", "SHE"):
        with suppress(ValueError):  # SHE wants a right prediction of each class
            single[name] = on_pooled(name, fit, weight.double(), bias.double())
    logits = {name: on_logits(name) for name in ("MaxSoftmax", "MaxLogit", "EnergyBased", "GEN")}
    return {"MultiMahalanobis": multi_mahalanobis(fit), **single, **logits}
