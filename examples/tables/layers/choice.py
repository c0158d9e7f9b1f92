"""Which rule should choose an OOD score by data? Nothing is trained.

    python choice.py MODEL --id-data SOURCE --ood-data NAME=SOURCE ... [--sizes 70 300 1000] [--draws 4]

In each draw some ID samples fit the scores, and they choose beside a part of one or two OOD sets. Other ID samples and
the other sets measure: mean AUROC and FPR95 in %, over draws and choosing sets. Images get the size and compression
of the ID images first.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
from features import as_stored

from hydractl.data.open import open_samples
from hydractl.data.reading import Reading, parse_data_sets
from hydractl.families.load import read_checkpoint
from hydractl.metrics.bootstrap import choose_score
from hydractl.metrics.detection import ood_metrics
from hydractl.ood.fit import Fitting, totals
from hydractl.ood.ood_scores import BASELINE, DEFAULT, OOD_SCORES
from hydractl.ood.score import FitSamples
from hydractl.run_options import Compute
from hydractl.systems.networks import NetworkSystem, run_by
from hydractl.systems.system import EvaluationData, SetKey

Scores = Mapping[str, Mapping[str, np.ndarray]]
CHOOSING = 100  # samples of each OOD set that chooses
SKIPPED = "mutual-information"  # one member agrees with itself


def answers(given: argparse.Namespace) -> dict[str, FitSamples]:
    """Returns what the network says of the ID samples (`id`) and of each OOD set by name."""
    checkpoint = read_checkpoint(given.model)
    reading = Reading(limit=given.limit)
    inside = open_samples(given.id_data, checkpoint.spec.modality, reading)
    sets = {SetKey("id", inside.name): inside}
    for source in parse_data_sets(given.ood_data, "OOD data"):
        samples = open_samples(source, checkpoint.spec.modality, reading)
        alike = as_stored(samples, inside) if checkpoint.spec.modality == "image" else samples
        sets[SetKey("ood", source.name, labelled=False)] = alike
    with run_by(Compute(device="cpu"), reading, print) as running:
        system = NetworkSystem((checkpoint,), data=EvaluationData(sets), running=running)
        return {
            key.name if key.role == "ood" else "id": system.answers(key, "layers", lambda _size: None).to_score()
            for key in sets
        }


def drawn(said: Mapping[str, FitSamples], size: int, seed: int) -> tuple[Scores, Scores]:
    """Returns scores of the samples that choose and of those that measure, by score and then by set."""
    generator = np.random.default_rng(seed)
    places = {name: generator.permutation(samples.samples) for name, samples in said.items()}
    first = {name: size if name == "id" else CHOOSING for name in said}
    chooses, measures = defaultdict(dict), defaultdict(dict)
    for row in (row for row in OOD_SCORES if row.name != SKIPPED):
        fitting = Fitting(row, said["id"].subset(places["id"][:size]))
        for name, samples in said.items():
            few, rest = (samples.subset(part) for part in np.split(places[name], [first[name]]))
            few_scores = fitting.held_out() if name == "id" else fitting.scores(fitting.whole, few)
            chooses[row.name][name] = totals(few_scores)
            measures[row.name][name] = totals(fitting.scores(fitting.whole, rest))
    return chooses, measures


def rules(chooses: Scores, sets: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yields the name of each rule, and the score that it chooses by some sets."""
    orders = {"the simplest within chance of the best": [*chooses]}
    orders["the default, unless worse beyond chance"] = sorted(chooses, key=lambda name: name != DEFAULT)
    for name, order in orders.items():
        inside = {score: chooses[score]["id"] for score in order}
        yield name, choose_score(inside, {score: {of: chooses[score][of] for of in sets} for score in order}).score
    means = {score: np.mean([ood_metrics(by["id"], by[of]).auroc for of in sets]) for score, by in chooses.items()}
    yield "the best", max(means, key=means.__getitem__)
    yield "the default always", DEFAULT
    yield "MSP always", BASELINE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--id-data", required=True)
    parser.add_argument("--ood-data", nargs="+", required=True)
    parser.add_argument("--sizes", nargs="*", type=int, default=[70, 300, 1000])
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--limit", type=int, default=2000)
    given = parser.parse_args()
    said = answers(given)
    outside = [name for name in said if name != "id"]
    print("| ID samples | rule | AUROC / FPR95 % | scores chosen |\n|---|---|---|---|")
    for size in given.sizes:
        detection, chosen = defaultdict(list), defaultdict(lambda: defaultdict(int))
        for seed in range(given.draws):
            chooses, measures = drawn(said, size, seed)
            for sets in (each for count in (1, 2) if count < len(outside) for each in combinations(outside, count)):
                for rule, score in rules(chooses, sets):
                    others = [measures[score][of] for of in outside if of not in sets]
                    metrics = [ood_metrics(measures[score]["id"], other) for other in others]
                    detection[rule] += [(100 * each.auroc, 100 * each.fpr95) for each in metrics]
                    chosen[rule][score] += 1
        for rule, pairs in detection.items():
            auroc, fpr95 = np.mean(pairs, 0)
            counts = ", ".join(f"{name} {count}" for name, count in sorted(chosen[rule].items(), key=lambda x: -x[1]))
            print(f"| {size} | {rule} | {auroc:.1f} / {fpr95:.1f} | {counts} |", flush=True)


if __name__ == "__main__":
    main()
