"""Labelled logits for studies of what is fitted to them: those that an evaluation saved, and synthetic ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from hydractl.metrics.checks import IntArray, Logits


def saved_logits(folder: str) -> tuple[Logits, IntArray]:
    """Returns logits `[M,N,C]` and labels `[N]` that `hydractl evaluate --save-logits` wrote."""
    found = load_file(next(Path(folder).rglob("id.safetensors")))
    return found["logits"], found["labels"]


def synthetic_logits(classes: int, samples: int, seed: int) -> tuple[Logits, IntArray]:
    """Returns logits `[1,N,C]` of a network that is right on two of three samples, and labels `[N]`.

    Classes have shares, scales and shifts of their own, which the logits ignore, so that there is something for a
    scale and a shift of each class to mend; all are 1.8 times too large, so that there is something for a temperature.
    """
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.full(classes, 20.0))
    labels = random.choice(classes, samples, p=shares)
    evidence = random.normal(size=(samples, classes))
    evidence[np.arange(samples), labels] += _needed(classes)
    scale, shift = np.exp(random.normal(0, 0.1, classes)), random.normal(0, 0.2, classes)
    logits: NDArray[np.float64] = 1.8 * _needed(classes) * (evidence * scale + shift)
    return logits[None].astype(np.float32), labels


def _needed(classes: int) -> float:
    """Returns how many deviations the right class stands above the others, so that two of three are found."""
    return 0.7 + float(np.sqrt(2 * np.log(classes)))
