"""Measures false alarms of `hydractl check`: many calibration sets of good data, each checked on the other samples.

    python check_splits.py MODEL DATA [NAME=SHARE ...] [--fit N ...] [--splits N] [--label-column NAME]

DATA are labelled samples like those that MODEL was trained on, apart from them. They are answered once. Each of the
splits (200) draws `--fit` of them (300) to calibrate on, as `calibrate` does with the promises named, such as
accuracy=90% sets=90%, and checks these on all others: what fails there fails by chance. Prints a Markdown table: for
each promise, the share of cases that keep it on the others, mean over splits, and how many splits are called broken;
for recall also the precision with the promise and without it. The last row counts splits with any false alarm.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import torch

from hydractl.calibration.promises import fit_recall, fit_sets, fit_sure, measure_recall
from hydractl.checkpoint.calibration import FittedOod, OodFit
from hydractl.data.open import open_samples
from hydractl.data.ranks import Ranks, batch_workers, local_device
from hydractl.data.reading import Reading
from hydractl.errors import DataError
from hydractl.evaluation.checkup import CheckedPromise, accepted, promises_of
from hydractl.inputs.models import as_checkpoint
from hydractl.metrics.arrays import IntArray
from hydractl.ood.fit import Fitting, totals
from hydractl.ood.ood_scores import DEFAULT, find_ood_score
from hydractl.ood.score import flagged, typicality
from hydractl.run_options import Compute
from hydractl.steps.calibrate import Promises
from hydractl.systems.networks import NetworkSystem
from hydractl.systems.system import EvaluationData, Running, SetKey
from hydractl.tasks.task import Answers


def answered(model: str, data: str, reading: Reading) -> Answers:
    """The answers of a network to every sample, with what the score over all layers reads."""
    network, compute = NetworkSystem((as_checkpoint(model),)), Compute(dtype="fp32")
    key, place = SetKey("id", data), local_device(compute.torch_device)
    with batch_workers(place) as in_parallel:
        running = Running(
            device=place, dtype=compute.torch_dtype, batch_size=64, workers=0, seed=0, reading=reading,
            ranks=Ranks(), in_parallel=in_parallel, on_note=print,
        )  # fmt: skip
        samples = open_samples(data, network.modality, reading)
        network = network.on(EvaluationData({key: samples}, reading.match_labels), running)
        return network.answers(key, "layers", lambda _samples: None)


def subset(answers: Answers, places: IntArray) -> Answers:
    """The answers to the samples at some places, in their order."""
    parts = {"features": answers.features[:, places], "hidden": [layer[:, places] for layer in answers.hidden]}
    if answers.places is None:
        return replace(answers, member_logits=answers.logits[:, places], truth=answers.truth[places], **parts)
    counts = np.bincount(answers.places[:, 0])
    starts, sizes = (np.cumsum(counts) - counts)[places], counts[places]
    words = np.concatenate([np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)])
    numbers = np.stack([np.repeat(np.arange(len(places)), sizes), answers.places[words, 1]], -1)
    return replace(answers, member_logits=answers.logits[:, words], truth=answers.truth[words], places=numbers, **parts)


def judged(
    held: Answers, rest: Answers, promises: Promises
) -> tuple[tuple[CheckedPromise, ...], tuple[float, float] | None]:
    """The promises of one calibration set on other samples, and the precision with and without that of recall.

    Fits what `calibrate` fits, without its own test of the OOD score.
    """
    calibration = held.task.fit(held).calibration(held.calibration)
    held, wanted = replace(held, calibration=calibration), promises.wanted
    sure, sets = fit_sure(held, wanted), fit_sets(held, wanted)
    fitting = Fitting(find_ood_score(DEFAULT), held.to_score())
    usual = np.sort(totals(fitting.held_out()))
    fit = OodFit(DEFAULT, len(held), promises.accept_share, wanted.accuracy, None if sure is None else sure[0])
    calibration = replace(calibration, ood=FittedOod(fit, {}), sets=sets, recall=fit_recall(held, wanted))
    rest = replace(rest, calibration=calibration)
    scores = torch.from_numpy(totals(fitting.scores(fitting.whole, rest.to_score())))
    flags = flagged(typicality(scores, torch.from_numpy(usual)), fit.accept).numpy()
    recalled = measure_recall(rest)
    cost = None if recalled is None else (recalled.precision, recalled.before)
    return promises_of(rest, [accepted(fit, len(usual), flags)]), cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("promises", nargs="*", metavar="NAME=SHARE", type=lambda text: text.split("="))
    parser.add_argument("--fit", nargs="*", type=int, default=[300])
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--label-column")
    settings = parser.parse_args()
    promises = Promises(**dict(settings.promises))
    answers = answered(settings.model, settings.data, Reading(label_column=settings.label_column))
    print("| promise | fitted on | checked on | promised % | kept % | precision %, without | broken | refused |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for size in settings.fit:
        seen, states, costs, alarms, refused = defaultdict(list), defaultdict(Counter), [], 0, 0
        for seed in range(settings.splits):
            order = np.random.default_rng(seed).permutation(len(answers))
            held, rest = (subset(answers, places) for places in (order[:size], order[size:]))
            try:
                rows, cost = judged(held, rest, promises)
            except DataError:  # too few samples for a promise, by chance
                refused += 1
                continue
            alarms += any(row.state == "broken" for row in rows)
            costs += [] if cost is None else [cost]
            for row in rows:
                seen[row.name, row.promised].append(row.seen.value)
                states[row.name, row.promised][row.state] += 1
        sizes = f"{size} | {len(answers) - size}"
        for (name, share), values in seen.items():
            precision = "{:.1f}, {:.1f}".format(*100 * np.mean(costs, axis=0)) if name == "recall" else "-"
            broken = states[name, share]["broken"]
            print(f"| {name} | {sizes} | {100 * share:g} | {100 * np.mean(values):.2f} | {precision} | {broken} | |")
        made = settings.splits - refused
        print(f"| any | {sizes} | | | | {alarms} of {made} ({100 * alarms / max(made, 1):.1f} %) | {refused} |")


if __name__ == "__main__":
    main()
