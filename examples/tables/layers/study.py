"""Which form should an OOD score over all layers have? Nothing is trained; each set is read once, by one network.

    python study.py MODEL --id-data SOURCE --ood-data NAME=SOURCE ... --cache FOLDER

Half of the ID samples fit (`--fit` says how many), the others measure. Images of OOD sets get the size and the
compression of the ID images first. Prints Markdown tables. `--cache` keeps what the layers said: name another folder
for another network.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from features import Features, as_stored, cached, dimmed
from forms import (
    FORMS,
    Array,
    Distances,
    Form,
    Scores,
    answer_scores,
    early_or_late,
    measure,
    scores,
    typicalities,
    weighted,
)
from peers import peers
from torch import Tensor

import hydractl
from hydractl.data.corruptions import corrupted, parse_corruptions
from hydractl.data.open import open_samples
from hydractl.data.reading import Reading, parse_data_sets
from hydractl.data.samples import Samples
from hydractl.metrics.detection import ood_metrics

ACCEPT = 0.95
#: The rows that further tables show.
SHOWN = ("baseline", "one Gaussian everywhere, plain sum", "last layer (Mahalanobis)")
#: What stands beside what.
CHOSEN, BESIDE = "all layers, last at 0.5", ("all layers", "last layer", "all layers, last at 1.0")
PROFILE = "one Gaussian everywhere, plain sum"


@dataclass(frozen=True)
class Study:
    """What one network said: of samples to fit on, by their number, of ID samples to measure, and of other sets."""

    fits: Mapping[str, Features]
    inside: Features
    outside: Mapping[str, Features]
    worse: Mapping[str, Features]  # ID samples made worse
    unequal: Mapping[str, Features]  # OOD sets as they are, and resized alone
    classifier: tuple[Tensor, Tensor]  # weight and bias


def table(header: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]], title: str) -> None:
    """Prints a Markdown table."""
    print(f"\n### {title}\n\n| {' | '.join(header)} |\n{'|---' * len(header)}|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def detection(inside: Array, outside: Mapping[str, Array]) -> dict[str, tuple[float, float]]:
    """Returns AUROC and FPR95 in %, of each OOD set and of their mean."""
    found = {name: ood_metrics(inside, one) for name, one in outside.items()}
    by_set = {name: (100 * one.auroc, 100 * one.fpr95) for name, one in found.items()}
    auroc, fpr95 = np.mean(list(by_set.values()), 0)
    return {"mean": (auroc, fpr95), **by_set}


def cell(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.1f} / {pair[1]:.1f}"


def flagged(found: Scores) -> list[str]:
    """Returns the share in % that is odder than 95 % of the fit's held-out samples, of ID and of each OOD set."""
    held = np.sort(found[0])
    limit = held[min(int(np.ceil(ACCEPT * (len(held) + 1))), len(held)) - 1]
    return [f"{100 * (one > limit).mean():.1f}" for one in (found[1], *found[2].values())]


def errors_found(inside: Features, score: Array) -> str:
    """Returns the AUROC in % of wrong answers on ID samples, by a score."""
    wrong = inside["logits"].argmax(1) != inside["labels"]
    return f"{100 * ood_metrics(score[~wrong], score[wrong]).auroc:.1f}" if 0 < wrong.sum() < len(wrong) else "-"


def print_forms(study: Study) -> None:
    """Prints the tables of all forms, by set, of flags and of errors."""
    found: dict[str, dict[str, Scores]] = {name: {} for name in FORMS}
    for size, fit in study.fits.items():
        kept: dict[Form, Distances] = {}
        for name, (form, rule) in FORMS.items():
            if form not in kept:
                kept[form] = measure(fit, study.inside, study.outside, form)
            found[name][size] = scores(kept[form], rule)
    plain = answer_scores(study.inside)
    others = {name: answer_scores(one) for name, one in study.outside.items()}
    by_logits = {rule: (plain[rule], {name: one[rule] for name, one in others.items()}) for rule in plain}

    def every() -> Iterator[list[str]]:
        for name, pair in by_logits.items():
            yield [name, *[cell(detection(*pair)["mean"])] * len(study.fits)]
        for name, one in found.items():
            yield [name, *(cell(detection(*one[size][1:])["mean"]) for size in study.fits)]

    table(["form", *study.fits], every(), "Mean AUROC / FPR95 by samples to fit on")
    sets = ["mean", *study.outside]
    last = list(study.fits)[-1]
    pairs = {**by_logits, **{f"{name}, {size}": found[name][size][1:] for name in SHOWN for size in study.fits}}
    rows = [[name, *(cell(detection(*pair)[one]) for one in sets)] for name, pair in pairs.items()]
    table(["form, samples", *sets], rows, "AUROC / FPR95 by set")
    rows = [[f"{name}, {size}", *flagged(found[name][size])] for name in SHOWN for size in study.fits]
    table(["form, samples", "ID", *study.outside], rows, "Flagged where 95 % are accepted, %")
    inside = {name: pair[0] for name, pair in by_logits.items()} | {name: found[name][last][1] for name in FORMS}
    rows = [[name, errors_found(study.inside, score)] for name, score in inside.items()]
    table(["score", "AUROC"], rows, f"Wrong answers on ID, found by a score fitted on {last}")


def differences(one: Scores, other: Scores, draws: int = 500) -> list[str]:
    """Returns by how much one score's mean AUROC, mean FPR95 and first AUROC are above another's, with intervals."""
    random, first = np.random.default_rng(0), next(iter(one[2]))
    found = []
    for draw in range(1 + draws):
        sizes = [len(one[1]), *map(len, one[2].values())]
        places = [random.integers(size, size=size) if draw else np.arange(size) for size in sizes]
        each = []
        for _, inside, outside in (one, other):
            drawn = {name: outside[name][at] for name, at in zip(outside, places[1:], strict=True)}
            by_set = detection(inside[places[0]], drawn)
            each.append((*by_set["mean"], by_set[first][0]))
        found.append(np.subtract(*each))
    low, high = np.quantile(found[1:], (0.025, 0.975), axis=0)
    return [f"{value:+.1f} ({a:+.1f} to {b:+.1f})" for value, a, b in zip(found[0], low, high, strict=True)]


def print_weights(study: Study) -> None:
    """Prints what the last layer adds to all of them, by its weight."""
    found = {size: weighted(fit, study.inside, study.outside) for size, fit in study.fits.items()}
    plain = answer_scores(study.inside), {name: answer_scores(one) for name, one in study.outside.items()}
    msp = detection(plain[0]["MSP"], {name: one["MSP"] for name, one in plain[1].items()})
    first = next(iter(study.outside))

    def every() -> Iterator[list[str]]:
        yield ["MSP", *[cell(msp["mean"]), f"{msp[first][0]:.1f}", "-"] * len(found)]
        for name in next(iter(found.values())):
            each = [(detection(*by_name[name][1:]), flagged(by_name[name])[0]) for by_name in found.values()]
            yield [
                name,
                *(one for by_set, odd in each for one in (cell(by_set["mean"]), f"{by_set[first][0]:.1f}", odd)),
            ]

    header = [f"{text}{size}" for size in found for text in ("", f"{first}, ", "ID flagged, ")]
    table(["score", *header], every(), f"The last layer beside all: mean AUROC / FPR95, AUROC of {first}")
    sets = ["mean", *study.outside]
    last = list(found)[min(1, len(found) - 1)]
    rows = [[name, *(cell(detection(*one[1:])[by]) for by in sets)] for name, one in found[last].items()]
    table([f"score, {last}", *sets], rows, "AUROC / FPR95 by set")
    rows = [[f"less {name}", *differences(found[last][CHOSEN], found[last][name])] for name in BESIDE]
    table([CHOSEN, "mean AUROC", "mean FPR95", f"AUROC {first}"], rows, "Differences, paired 95 % intervals")


def print_profile(study: Study) -> None:
    """Prints where sets are odd, and what a rule says of those that are flagged."""
    form, rule = FORMS[PROFILE]
    fit = list(study.fits.values())[-1]
    sets = {"ID": study.inside, **study.worse, **study.outside, **study.unequal}
    found = measure(fit, study.inside, sets, form)
    held, _, by_set = scores(found, rule)
    limit = np.quantile(held, ACCEPT)

    def every() -> Iterator[list[str]]:
        for name, by_layer in found.outside.items():
            p = typicalities(found.held, by_layer)
            odd = by_set[name] > limit
            early = f"{100 * (early_or_late(p[odd]) > 0).mean():.0f}" if odd.any() else "-"
            yield [name, " ".join(f"{100 * share:.0f}" for share in (p < 1 - ACCEPT).mean(0)),
                   f"{100 * odd.mean():.0f}", early]  # fmt: skip

    header = ["set", "typicality below 5 %, by layer from the embeddings", "by the score", "of these odder early"]
    table(header, every(), "Where sets are odd, % of samples")


def print_unequal(study: Study) -> None:
    """Prints what the size and compression of files do to the figures."""
    form, rule = FORMS[PROFILE]
    sets = {**study.outside, **study.unequal}
    found = scores(measure(list(study.fits.values())[-1], study.inside, sets, form), rule)
    by_set = detection(found[1], found[2])
    named = [name for name in study.outside if f"{name} resized" in study.unequal]
    rows = [[name, *(cell(by_set[f"{name}{end}"]) for end in ("", " resized", " as it is"))] for name in named]
    table(["set", "size and compression of ID", "size of ID", "as it is"], rows, f"Files that differ: {PROFILE}")


def print_peers(study: Study) -> None:
    """Prints pytorch-ood's detectors on the same features, and how far its sum over layers is from ours."""
    fit = list(study.fits.values())[-1]
    rows, apart = [], 0.0
    for name, score in peers(fit, *study.classifier).items():
        inside, outside = score(study.inside), {other: score(one) for other, one in study.outside.items()}
        rows.append([name, *map(cell, detection(inside, outside).values())])
        if name == "MultiMahalanobis":
            form = Form(classes="all", unit=False, shrink=False)
            ours = measure(fit, study.inside, {}, form).inside[:, 1:].sum(1)
            apart = abs(ours / (2 * len(fit["labels"])) / inside - 1).max()
    table(["pytorch-ood", "mean", *study.outside], rows, "Peers on the same features")
    print(
        f"\nLargest relative difference of our plain sum (class means, no shrinkage) to MultiMahalanobis: {apart:.1e}"
    )


def opened(source: Any, model: Any, limit: int | None) -> Samples:
    """Returns the samples of one data set."""
    return open_samples(source, "text" if hasattr(model, "text") else "image", Reading(limit=limit))


def made_worse(samples: Samples, asked: argparse.Namespace) -> dict[str, Samples]:
    """Returns images made worse in each way, and half as bright, for the profile alone; no texts."""
    if samples.modality != "image" or "profile" not in asked.tables:
        return {}
    parsed = parse_corruptions(asked.corrupt)
    return {f"{kind.name} {level}": corrupted(samples, kind, level) for kind, level in parsed} | {
        "half as bright": dimmed(samples)
    }


def read_all(asked: argparse.Namespace, model: Any) -> Study:
    """Reads every data set, or takes it from the folder."""
    inside = opened(asked.id_data, model, asked.limit if asked.quick else None)
    order = np.random.default_rng(0).permutation(len(inside))
    half = len(order) // 2
    measured = inside.subset(order[half:])

    def said(name: str, samples: Samples) -> Features:
        return cached(asked.cache / f"{name}.npz", model, samples)

    whole = said("id", inside)

    def part(places: Array) -> Features:
        return {name: values[places] for name, values in whole.items()}

    sizes = [int(size) for size in asked.fit.split(",") if int(size) <= half]
    fits = {str(size): part(order[:size]) for size in sizes}
    if asked.fit_data:
        other = opened(asked.fit_data, model, asked.fit_limit)
        fits[f"{len(other)} of --fit-data"] = said("fit", other)
    outside, unequal = {}, {}
    for spec in parse_data_sets(asked.ood_data):
        samples = opened(spec, model, asked.limit)
        outside[spec.name] = said(spec.name, as_stored(samples, inside))
        if spec.name in asked.unequal:
            unequal[f"{spec.name} resized"] = said(f"{spec.name}-resized", as_stored(samples, inside, False))
            unequal[f"{spec.name} as it is"] = said(f"{spec.name}-as-it-is", samples)
    worse = made_worse(measured.subset(np.arange(min(len(measured), asked.worse))), asked)
    weight, bias = (getattr(model.classifier, name).detach() for name in ("weight", "bias"))
    classifier = weight.reshape(-1, weight.shape[-1]), bias.reshape(-1)
    corrupted_ones = {name: said(name.replace(" ", "-"), one) for name, one in worse.items()}
    return Study(fits, part(order[half:]), outside, corrupted_ones, unequal, classifier)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--id-data", required=True)
    parser.add_argument("--ood-data", nargs="+", required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--fit", default="300,1000,2500", help="numbers of ID samples to fit on, at most half of them")
    parser.add_argument("--fit-data", help="other ID samples to fit on, as one more column")
    parser.add_argument("--fit-limit", type=int, default=2500)
    parser.add_argument("--limit", type=int, default=500, help="samples of each OOD set")
    parser.add_argument("--worse", type=int, default=200, help="ID images to make worse, for the profile")
    parser.add_argument("--corrupt", default="gaussian_noise,defocus_blur,jpeg_compression,pixelate:3")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--unequal", nargs="*", default=[], help="OOD sets of images to read as they are, too")
    parser.add_argument(
        "--tables", default="weights,forms,profile,files", help="perhaps with peers, which take pytorch-ood"
    )
    parser.add_argument("--quick", action="store_true", help="a few samples, to try it out")
    asked = parser.parse_args()
    if asked.quick:
        asked.limit, asked.fit, asked.corrupt = 40, "20", "gaussian_noise:3"
    model = hydractl.load(asked.model, dtype=asked.dtype)
    study = read_all(asked, model)
    accuracy = (study.inside["logits"].argmax(1) == study.inside["labels"]).mean()
    print(f"ID: {len(study.inside['labels'])} samples measure, accuracy {100 * accuracy:.1f} %")
    printed = {
        "weights": print_weights,
        "forms": print_forms,
        "profile": print_profile,
        "files": print_unequal,
        "peers": print_peers,
    }
    for name in asked.tables.split(","):
        printed[name](study)


if __name__ == "__main__":
    main()
