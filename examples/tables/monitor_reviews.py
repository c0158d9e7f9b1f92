"""Compares accuracy that `monitor` estimates without labels with the true one, on texts from elsewhere and worse ones.

    python monitor_reviews.py MODEL DATA [CALIBRATION] NAME=FILE...

MODEL is a classifier of texts, DATA labelled texts like those that it was trained on, apart from them; each FILE is a
table of labelled texts from elsewhere. CALIBRATION texts of DATA (half unless given), drawn at random, calibrate it.
The others are measured as they are and made worse: words dropped, letters swapped, cut short. Prints a Markdown table,
then the mean error of each estimate and how often its interval held.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence

import datasets
import numpy as np
from monitor_accuracy import METHODS

import hydractl
from hydractl.data.open import open_samples
from hydractl.monitoring.estimates import estimates

CLEAN = "as they are"


def without(share: float) -> Callable[[str], str]:
    """Returns what leaves out a share of the words."""
    return lambda text: " ".join(word for word in text.split() if random.random() >= share) or text


def swapped(share: float) -> Callable[[str], str]:
    """Returns what swaps two letters inside a share of the words."""

    def one(word: str) -> str:
        at = random.randrange(len(word) - 1) if len(word) > 1 and random.random() < share else None
        return word if at is None else word[:at] + word[at + 1] + word[at] + word[at + 2 :]

    return lambda text: " ".join(map(one, text.split()))


WORSE: Mapping[str, Callable[[str], str]] = {
    CLEAN: str,
    "a third of the words missing": without(1 / 3),
    "two thirds missing": without(2 / 3),
    "letters swapped in half the words": swapped(0.5),
    "in every word": swapped(1.0),
    "first five words": lambda text: " ".join(text.split()[:5]),
}


def measured(network: hydractl.Hydra, texts: Sequence[str], labels: Sequence[str]) -> tuple[list[float], list[bool]]:
    """Returns the accuracy, its estimates, typicality and the input of the alarm, and whether each interval held."""
    monitor, answers = hydractl.Monitor(network), network.predict(list(texts))
    monitor.update(answers)
    found, accuracy = monitor.findings(), float(np.mean(np.array(answers.labels) == np.array(labels)))
    estimated = estimates(monitor.streams[0].answered, monitor.known.baseline)  # also where many look OOD
    guesses = [estimated[method] for method in METHODS]
    numbers = [accuracy, *(guess.value for guess in guesses), float(answers.typicality.mean())]
    return [*numbers, found.alarm_at or np.inf], [guess.low <= accuracy <= guess.high for guess in guesses]


def labelled(data: object) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the texts of data, and the names of their classes."""
    samples = open_samples(data, "text")
    assert samples.labels is not None
    names = samples.label_names or hydractl.load(sys.argv[1]).labels
    return samples.inputs, [names[at] for at in samples.labels]


def main(model: str, data: str, *others: str) -> None:
    drawn = datasets.Dataset.from_parquet(data).shuffle(seed=0)
    size = int(others[0]) if others and others[0].isdigit() else len(drawn) // 2
    warm = hydractl.calibrate(model, id_data=drawn.select(range(size)), match_labels="index", dtype="fp32")
    network = hydractl.load(warm, dtype="fp32")
    texts, labels = labelled(drawn.select(range(size, len(drawn))))
    random.seed(0)
    sets = {name: ([worse(text) for text in texts], labels) for name, worse in WORSE.items()}
    sets |= {name: labelled(file) for name, file in (one.split("=", 1) for one in others if "=" in one)}
    print(f"| texts | number | accuracy, % | by {' | by '.join(METHODS)} | mean typicality | alarm at input |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    rows, held = [], []
    for name, given in sets.items():
        row, kept = measured(network, *given)
        shown = " | ".join(f"{100 * one:.1f}" for one in row[:-2])
        alarm = "-" if row[-1] == np.inf else f"{row[-1]:.0f}"
        print(f"| {name} | {len(given[0]):,} | {shown} | {row[-2]:.2f} | {alarm} |", flush=True)
        rows.append(row)
        held.append(kept)
    every, clean = np.array(rows[1:]), rows[0][0]
    print(f"\nMean error of the accuracy on {len(every)} sets, points: that of texts {CLEAN} ", end="")
    print(f"{100 * np.abs(every[:, 0] - clean).mean():.1f}", end="")
    for place, method in enumerate(METHODS):
        error = 100 * np.abs(every[:, 1 + place] - every[:, 0]).mean()
        print(f"; {method} {error:.1f}, its interval holds {100 * np.mean(held[1:], axis=0)[place]:.0f} %", end="")
    print(".")


if __name__ == "__main__":
    main(*sys.argv[1:])
