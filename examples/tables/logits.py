"""Labelled logits for studies of what is fitted to them: those that an evaluation saved, and synthetic ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from hydractl.metrics.arrays import IntArray, Logits


def saved_logits(folder: str) -> tuple[Logits, IntArray]:
    """Returns logits `[M,N,C]` and labels `[N]` that `hydractl evaluate --save-logits` wrote."""
    found = load_file(next(Path(folder).rglob("id.safetensors")))
    return found["logits"], found["labels"]


def synthetic_logits(classes: int, samples: int, seed: int, own: bool = True) -> tuple[Logits, IntArray]:
    """Returns logits `[1,N,C]` of an over-confident network, which are 1.8 times too large, and labels `[N]`.

    Args:
        own: whether classes have shares, scales and shifts of their own, which a scale and a shift of each can mend.
    """
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.full(classes, 20.0)) if own else np.full(classes, 1 / classes)
    labels = random.choice(classes, samples, p=shares)
    evidence = random.normal(size=(samples, classes))
    evidence[np.arange(samples), labels] += _needed(classes)
    scale, shift = np.exp(random.normal(0, 0.1, classes)), random.normal(0, 0.2, classes)
    if own:
        evidence = evidence * scale + shift
    logits: NDArray[np.float64] = 1.8 * _needed(classes) * evidence
    return logits[None].astype(np.float32), labels


def _needed(classes: int) -> float:
    """Returns how many deviations the right class stands above the others: of 10 to 1,000 classes, 80 to 86 % win."""
    return 0.7 + float(np.sqrt(2 * np.log(classes)))
