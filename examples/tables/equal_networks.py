"""How often a verdict recommends one of two networks that are equal by construction, by simulated answers.

    python equal_networks.py COMPARISONS RESAMPLES SAMPLES,SAMPLES,...

Two networks answer with the same distribution: logits of the class, noise that both share (a sample is hard for both),
and noise of their own. Temperatures differ in no way, so no metric differs but by the draw of the samples. Each
comparison draws labelled samples and two OOD sets of a third as many. Prints a Markdown table: the share of
comparisons in which `build` would say "Deploy hydra", and in which a 95 % interval of any metric shows a gain.
"""

from __future__ import annotations

import sys

import numpy as np

from hydractl.checkpoint.calibration import Calibration
from hydractl.evaluation.run import SystemPredictions
from hydractl.evaluation.system_numbers import SystemNumbers, assemble, numbers_of, resample
from hydractl.metrics.classification import tabulate
from hydractl.reports.columns import JUDGED
from hydractl.reports.verdict import recommended
from hydractl.systems.saved_file import SAVED
from hydractl.systems.system import SetKey

CLASSES = 10
SHARED, OWN = 1.0, 0.5  # standard deviations of noise
ID = SetKey("id", "id")


def answers(generator: np.random.Generator, samples: int, labelled: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """The logits of both networks, `[1,N,C]` each, and the labels."""
    labels = generator.integers(CLASSES, size=samples)
    shared = SHARED * generator.normal(size=(1, samples, CLASSES))
    shared[0, np.arange(samples), labels] += 4.0 if labelled else 1.5
    return [shared + OWN * generator.normal(size=shared.shape) for _ in range(2)], labels


def compared(generator: np.random.Generator, samples: int, resamples: int) -> tuple[bool, bool]:
    """Whether a comparison recommends the second network, and whether an interval shows a gain."""
    inside, labels = answers(generator, samples, True)
    outside = {SetKey("ood", name): answers(generator, max(samples // 3, 20), False)[0] for name in ("one", "two")}
    parts = []
    for number, name in enumerate(("network", "hydra")):
        tables = {ID: tabulate(inside[number], labels)}
        tables |= {key: tabulate(logits[number]) for key, logits in outside.items()}
        found = SystemPredictions(
            SAVED, Calibration(), None, tables, {key: -table.msp for key, table in tables.items()}
        )
        numbers = numbers_of(found, None)
        parts.append(SystemNumbers(name, numbers, resample(found, resamples, 0)))
    systems = assemble(parts)
    paired = {column: column.paired(systems["hydra"]) for column in JUDGED.values()}
    better = {
        column: (one.interval[0] if column.better == "higher" else -one.interval[1])
        for column, one in paired.items()
        if one
    }
    return recommended(systems)[0] == "hydra", max(better.values()) > 0


def main(comparisons: str, resamples: str, sizes: str) -> None:
    """Prints the table."""
    print('| samples | comparisons | "Deploy hydra" % | an interval shows a gain % |')
    print("| --- | ---: | ---: | ---: |")
    for samples in map(int, sizes.split(",")):
        generator = np.random.default_rng(samples)
        found = np.mean([compared(generator, samples, int(resamples)) for _ in range(int(comparisons))], axis=0)
        print(f"| {samples} | {comparisons} | {100 * found[0]:.1f} | {100 * found[1]:.1f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
