"""Compares accuracy that `monitor` estimates without labels with the true one, on images made worse in fifteen ways.

    python monitor_accuracy.py MODEL DATA [CALIBRATION [TEST [SEVERITIES]]]

MODEL is a classifier, DATA a parquet file of labelled images. Draws CALIBRATION images (1,000) to calibrate on and TEST
others (400), which it makes worse at SEVERITIES, some of 1 to 5 (1,3,5). Prints a Markdown table with means over
severities and when alarms came, then the mean error of each estimate and how often its interval held.
"""

from __future__ import annotations

import sys

import datasets
import numpy as np

import hydractl
from hydractl.data.corruptions import CORRUPTIONS, corrupted
from hydractl.data.open import open_samples
from hydractl.monitoring.estimates import estimates

METHODS = ("mean confidence", "ATC")
CLEAN = "none"


def main(model: str, data: str, calibration: str = "1000", test: str = "400", severities: str = "1,3,5") -> None:
    drawn = datasets.Dataset.from_parquet(data).shuffle(seed=0)
    known, others = np.split(np.arange(int(calibration) + int(test)), [int(calibration)])
    network = hydractl.load(hydractl.calibrate(model, id_data=drawn.select(known), dtype="fp32"), dtype="fp32")
    samples, classes = open_samples(drawn.select(others), "image"), None
    assert samples.labels is not None and samples.label_names is not None
    rows: dict[str, list[list[float]]] = {}
    held = []
    kinds = [(CLEAN, samples)]
    kinds += [(kind.name, corrupted(samples, kind, int(at))) for kind in CORRUPTIONS for at in severities.split(",")]
    for name, worse in kinds:
        monitor = hydractl.Monitor(network)
        answers = network.predict(worse.inputs)
        monitor.update(answers)
        found, classes = monitor.findings(), answers.classes
        right = [classes.index(label) for label in answers.labels] == samples.labels
        accuracy = float(np.mean(right))
        estimated = estimates(monitor.streams[0].answered, monitor.known.baseline)  # also where many look OOD
        guesses = [estimated[method] for method in METHODS]
        held.append([guess.low <= accuracy <= guess.high for guess in guesses])
        shown = [accuracy, *(guess.value for guess in guesses), float(answers.typicality.mean())]
        rows.setdefault(name, []).append([*shown, found.alarm_at or np.inf])
    assert tuple(samples.label_names) == classes, "the data has other class names than the model"
    print(f"| images | accuracy, % | by {' | by '.join(METHODS)} | mean typicality | alarm at input, by severity |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, each in rows.items():
        means = np.mean([row[:-1] for row in each], axis=0)
        alarms = ", ".join("-" if row[-1] == np.inf else f"{row[-1]:.0f}" for row in each)
        print(f"| {name} | {' | '.join(f'{100 * one:.1f}' for one in means[:-1])} | {means[-1]:.2f} | {alarms} |")
    every = np.array([row[:3] for name, each in rows.items() if name != CLEAN for row in each])
    naive = np.abs(every[:, 0] - rows[CLEAN][0][0]).mean()
    print(f"\nMean error of the accuracy on {len(every)} sets, points: that of clean images {100 * naive:.1f}", end="")
    for place, method in enumerate(METHODS):
        error = 100 * np.abs(every[:, 1 + place] - every[:, 0]).mean()
        print(f"; {method} {error:.1f}, its interval holds {100 * np.mean(held[1:], axis=0)[place]:.0f} %", end="")
    print(".")


if __name__ == "__main__":
    main(*sys.argv[1:])
