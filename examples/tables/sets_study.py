"""Compares prediction sets by a threshold of probability (LAC) and by summed probability (APS) over many splits.

    python sets_study.py [--splits N] NAME=FOLDER...

FOLDER is what `hydractl evaluate --save-logits` wrote; two synthetic networks of 100 and 1,000 classes join them. Each
of N splits (100) draws samples for the temperature and for sets that promise 95 %, as `calibrate` does, and measures on
the others: coverage, mean size, coverage of the class that has least, and of the fifth of the samples with the lowest
confidence. `LAC as large` is LAC with the threshold that gives its sets the mean size of APS.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np
from logits import saved_logits, synthetic_logits

from hydractl.metrics.arrays import FloatArray, IntArray, Logits, mean_over_members, member_probabilities
from hydractl.metrics.scaling import fit_temperature

COVERAGE, ROUNDING = 0.95, 1e-12
SYNTHETIC = {"synthetic, 100 classes": (100, 4000), "synthetic, 1,000 classes": (1000, 8000)}


def summed(p: FloatArray) -> FloatArray:
    """Returns for each class the summed probability of all classes at least as probable, `[N,C]`: what APS counts."""
    order = np.argsort(-p, axis=-1)
    found = np.empty_like(p)
    np.put_along_axis(found, order, np.take_along_axis(p, order, -1).cumsum(-1), -1)
    return np.minimum(found, 1.0)


def limit(lack: FloatArray) -> float:
    """Returns the ceil((n + 1) 95 %)-th smallest number; 1, which every class reaches, where they are too few."""
    rank = int(np.ceil(round((lack.size + 1) * COVERAGE, 9)))
    return float(np.sort(lack)[rank - 1]) if rank <= lack.size else 1.0


def measured(lack: FloatArray, labels: IntArray, doubt: IntArray, most: FloatArray | float) -> list[float]:
    """Returns coverage, mean size, coverage of the worst class and of the samples `doubt`."""
    chosen = lack <= np.asarray(most) + ROUNDING
    chosen[np.arange(len(lack)), lack.argmin(-1)] = True
    covered = chosen[np.arange(len(labels)), labels]
    counts = np.bincount(labels)
    shares = np.bincount(labels, covered)[counts > 0] / counts[counts > 0]
    return [covered.mean(), chosen.sum(-1).mean(), shares.min(), covered[doubt].mean()]


def split(logits: Logits, labels: IntArray, known: IntArray, rest: IntArray) -> dict[str, list[float]]:
    """Returns the numbers of each kind of sets on one split."""
    temperature = fit_temperature(logits[:, known], labels[known]).temperature
    p = mean_over_members(member_probabilities(logits.astype(np.float64) / temperature))
    doubt = p[rest].max(-1).argsort()[: len(rest) // 5]
    rows = {}
    for name, lack in {"LAC": 1 - p, "APS": summed(p)}.items():
        own = lack[known, labels[known]]
        classes = np.array([limit(own[labels[known] == one]) for one in range(p.shape[-1])])
        rows[name] = measured(lack[rest], labels[rest], doubt, limit(own))
        rows[f"{name} by class"] = measured(lack[rest], labels[rest], doubt, classes)
    size = round(rows["APS"][1] * len(rest)) - 1
    rows["LAC as large"] = measured(
        1 - p[rest], labels[rest], doubt, float(np.partition((1 - p[rest]).ravel(), size)[size])
    )
    return rows


def table(networks: Mapping[str, tuple[Logits, IntArray]], splits: int) -> None:
    """Prints the mean over splits for each network."""
    random = np.random.default_rng(0)
    print("| network, samples for the sets | sets | coverage, % | mean size | worst class, % | least sure fifth, % |")
    print("|---|---|---:|---:|---:|---:|")
    for name, (logits, labels) in networks.items():
        size = min(1000, len(labels) // 2) if logits.shape[-1] < 100 else len(labels) // 2
        halves = (np.split(random.permutation(len(labels)), [size]) for _ in range(splits))
        found = [split(logits, labels, *half) for half in halves]
        for row in found[0]:
            covered, sets, worst, hard = np.mean([one[row] for one in found], axis=0)
            numbers = f"{100 * covered:.1f} | {sets:.2f} | {100 * worst:.1f} | {100 * hard:.1f}"
            print(f"| {name}, {size:,} | {row} | {numbers} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("networks", nargs="*", metavar="NAME=FOLDER")
    given = parser.parse_args()
    networks = {name: saved_logits(folder) for name, folder in (one.split("=", 1) for one in given.networks)}
    made = {name: synthetic_logits(*sizes, seed=0) for name, sizes in SYNTHETIC.items()}
    table({**networks, **made}, given.splits)


if __name__ == "__main__":
    main()
