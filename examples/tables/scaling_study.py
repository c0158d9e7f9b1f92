"""Compares a scale and a shift for each class, as `calibrate --method vector` fits them, with a temperature alone.

    python scaling_study.py [--draws N] NAME=FOLDER... [--classes 10 100 1000]

FOLDER is what `hydractl evaluate --save-logits` wrote; synthetic networks of 10, 100 and 1,000 classes join them, with
and without classes that need scales and shifts of their own. Each of N draws (20; fewer of the synthetic ones) takes
5 to 50 samples a class to fit on, and measures the NLL on others. Prints a Markdown table: the NLL by the temperature,
and the difference to it with its 95 % interval over draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from logits import saved_logits, synthetic_logits
from scipy.stats import t

from hydractl.metrics.arrays import IntArray, Logits, label_log_probabilities
from hydractl.metrics.scaling import fit_temperature, fit_vector

SIZES = (5, 10, 20, 50)  # samples a class
SYNTHETIC = {10: 20, 100: 8, 1000: 3}  # draws by classes
TEST = 4000


def nll(logits: Logits, labels: IntArray) -> float:
    return -float(label_log_probabilities(logits.astype(np.float64), labels).mean())


def fitted(logits: Logits, labels: IntArray, size: int) -> tuple[float, float, float]:
    """Returns the NLL by the temperature of all but the first `size` samples, the difference, and 1 if it is all."""
    known, rest = (logits[:, :size], labels[:size]), (logits[:, size:], labels[size:])
    warm = nll(rest[0] / fit_temperature(*known).temperature, rest[1])
    found = fit_vector(*known)
    return (
        warm,
        nll(found.apply(rest[0].astype(np.float64)), rest[1]) - warm,
        float(not any(found.shift) and len(set(found.scale)) == 1),
    )


def saved(folder: str, per_class: int, draws: int) -> Iterator[tuple[float, float, float]]:
    """Yields the numbers of each draw; only every other sample is used, the rest chose the strength of the ridge."""
    logits, labels = (each[..., 1::2, :] if each.ndim == 3 else each[1::2] for each in saved_logits(folder))
    size, random = per_class * logits.shape[2], np.random.default_rng(per_class)
    for _ in range(draws if size <= 0.6 * len(labels) else 0):
        order = random.permutation(len(labels))
        yield fitted(logits[:, order], labels[order], size)


def synthetic(classes: int, per_class: int, own: bool) -> Iterator[tuple[float, float, float]]:
    for seed in range(SYNTHETIC[classes]):
        yield fitted(*synthetic_logits(classes, per_class * classes + TEST, seed, own=own), per_class * classes)


def show(name: str, per_class: int, draws: Iterator[tuple[float, float, float]]) -> None:
    """Prints a row, if there are draws."""
    found = np.array(list(draws))
    if not len(found):
        return
    (warm, change, alike), error = found.mean(0), found[:, 1].std(ddof=1) / len(found) ** 0.5
    width = error * t.ppf(0.975, len(found) - 1)
    span = f"{change:+.4f} ({change - width:+.4f} to {change + width:+.4f})"
    print(
        f"| {name} | {per_class} | {warm:.4f} | {span} | {100 * change / warm:+.2f} | {100 * alike:.0f} |", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--classes", nargs="*", type=int, default=list(SYNTHETIC), help="of synthetic networks")
    parser.add_argument("networks", nargs="*", metavar="NAME=FOLDER")
    given = parser.parse_args()
    print("| network | samples a class | NLL by temperature | difference | in % | left at the temperature, % |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, folder in (one.split("=", 1) for one in given.networks):
        for size in SIZES:
            show(name, size, saved(folder, size, given.draws))
    for own in (True, False):
        for classes in given.classes:
            for size in SIZES:
                name = f"synthetic, {classes:,} classes{'' if own else ' alike'}"
                show(name, size, synthetic(classes, size, own))


if __name__ == "__main__":
    main()
