"""Measures false alarms of `hydractl monitor` on real images: many calibration sets, each with its own stream.

    python monitor_splits.py MODEL DATA [SPLITS]

DATA is a parquet file of images like those that MODEL was trained on, apart from them. Each split (200) draws 300 or
1,000 images to calibrate the score over all layers on; all others, in random order, are the stream. Prints a Markdown
table: how often the evidence reached 100 and 20, that is alarmed at an alpha of 1 and 5 %, and the share of inputs with
a typicality up to 5 %.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

import hydractl
from hydractl.data.batching import make_batches
from hydractl.data.open import open_samples
from hydractl.inference import member_answers
from hydractl.monitoring.stream import Evidence, Scale
from hydractl.ood.fit import Fitting, totals
from hydractl.ood.layers import LAYERS
from hydractl.ood.score import FitSamples, typicality

SIZES = (300, 1000)


def answered(model: str, data: str) -> FitSamples:
    """What the score over all layers reads of every image."""
    network = hydractl.load(model, dtype="fp32")
    batches = make_batches(open_samples(data, "image"), network.preprocessor, 64)
    found = [member_answers(network, batch, "layers") for batch in batches]
    layers = zip(*(one.hidden for one in found), strict=True)
    logits = torch.cat([one.member_logits for one in found], 1).numpy()
    return FitSamples(
        logits,
        torch.cat([one.features for one in found], 1).numpy(),
        hidden=[torch.cat(layer, 1).numpy() for layer in layers],
        predicted=logits[0].argmax(-1),
    )


def stream(every: FitSamples, order: NDArray[np.int64], size: int) -> tuple[float, float]:
    """The highest evidence of one split, and the share of inputs with a typicality up to 5 %."""
    fitting = Fitting(LAYERS, every.subset(order[:size]))
    known = torch.from_numpy(np.sort(totals(fitting.held_out())))
    scores = torch.from_numpy(totals(fitting.scores(fitting.whole, every.subset(order[size:]))))
    typical = typicality(scores, known).numpy()
    scale, highest = Scale(size, size), 1.0
    evidence = Evidence(scale)
    for low in scale.low(typical):
        evidence.add(low)
        highest = max(highest, float(evidence.value))
    return highest, float((typical <= 0.05).mean())


def main(model: str, data: str, splits: str = "200") -> None:
    every, random = answered(model, data), np.random.default_rng(0)
    print("| calibration samples | inputs | alarms at 1 % | alarms at 5 % | typicality up to 5 %, mean | least, most |")
    print("|---|---:|---:|---:|---:|---:|")
    for size in SIZES:
        found: Sequence[tuple[float, float]] = [
            stream(every, random.permutation(every.samples), size) for _ in range(int(splits))
        ]
        highest, low = map(np.array, zip(*found, strict=True))
        alarms = " | ".join(f"{100 * (highest >= limit).mean():.1f} %" for limit in (100, 20))
        shares = f"{100 * low.mean():.1f} % | {100 * low.min():.1f}, {100 * low.max():.1f} %"
        print(f"| {size} | {every.samples - size} | {alarms} | {shares} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
