"""What share of new ID samples typicality accepts, and its profile layer by layer, from 300 to thousands of samples.

    python coverage.py [MODEL --id-data SOURCE] [--sizes 300,1000,...] [--draws 20]

With a model, each draw calibrates on some of the samples and counts on the others. Without one it simulates: layers of
random Gaussians that share half of their variance, as a network's do. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from features import read

import hydractl
from hydractl.calibration.ood_fit import thinned
from hydractl.data.open import open_samples
from hydractl.data.reading import Reading
from hydractl.ood.fit import Fitting, score_samples, totals
from hydractl.ood.ood_scores import DEFAULT, find_ood_score
from hydractl.ood.score import FitSamples, flagged, typicality

LAYERS, WIDTH, NEW = 12, 192, 1000


def simulated(count: int, seed: int) -> FitSamples:
    """Returns a network's answers that are Gaussian in every layer, of axes as unequal as a network's."""
    generator = np.random.default_rng(seed)
    common, spread = generator.normal(size=(count, WIDTH)), np.geomspace(1, 0.03, WIDTH)
    layers = [((common + generator.normal(size=(count, WIDTH))) * spread + 0.1)[None] for _ in range(LAYERS)]
    return FitSamples(np.zeros((1, count, 2)), layers[-1], hidden=layers[:-1], predicted=np.arange(count) % 10)


def answers(model: str, source: str) -> FitSamples:
    """Returns what a network of one member says of a data set."""
    network = hydractl.load(model, dtype="float32")
    samples = open_samples(source, "text" if hasattr(network, "text") else "image", Reading())
    found = read(network, samples)
    hidden = [found["mean"][None, :, layer] for layer in range(1, found["mean"].shape[1] - 1)]
    predicted = found["logits"].argmax(1)
    return FitSamples(found["logits"][None], found["pooled"][None], hidden=hidden, predicted=predicted)


def accepted(scores: np.ndarray, known: np.ndarray, share: float) -> float:
    """Returns the share of scores that is not flagged by the quantiles of others."""
    typical = typicality(torch.from_numpy(scores), torch.from_numpy(thinned(known)))
    return 1 - float(flagged(typical, share).double().mean())


def measured(known: FitSamples, new: FitSamples, share: float) -> tuple[float, float, list[float]]:
    """Returns the accepted share of new samples, what `calibrate` says of it, and that of each layer alone."""
    row = find_ood_score(DEFAULT)
    fitting = Fitting(row, known)
    held, scores = fitting.held_out(), score_samples(row, fitting.whole, new)
    layers = [accepted(*pair, share) for pair in zip(scores[:-1], held[:-1], strict=True)]
    return accepted(totals(scores), totals(held), share), fitting.accepted(share) / known.samples, layers


def drawn(whole: FitSamples | None, size: int, draws: int) -> Iterator[tuple[FitSamples, FitSamples]]:
    """Yields samples to calibrate on and new ones, of a whole or simulated."""
    for seed in range(draws):
        some = whole or simulated(size + NEW, seed)
        order = np.random.default_rng(seed).permutation(some.samples)
        yield some.subset(order[:size]), some.subset(order[size:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--id-data")
    parser.add_argument("--sizes", default="300,1000,2500,5000")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--accept", type=float, default=0.95)
    given = parser.parse_args()
    if given.model and not given.id_data:
        parser.error("MODEL needs --id-data")
    found = answers(given.model, given.id_data) if given.model else None
    print("| samples | accepted %, mean | lowest | highest | said by calibrate % | layers %, lowest and highest mean |")
    print("|---|---|---|---|---|---|")
    for size in map(int, given.sizes.split(",")):
        pairs = drawn(found, size, given.draws)
        whole, said, layers = zip(*(measured(*pair, given.accept) for pair in pairs), strict=True)
        each = np.mean(layers, axis=0)
        numbers = np.mean(whole), min(whole), max(whole), np.mean(said)
        cells = " | ".join(f"{100 * number:.1f}" for number in numbers)
        print(f"| {size} | {cells} | {100 * each.min():.1f} to {100 * each.max():.1f} |", flush=True)


if __name__ == "__main__":
    main()
