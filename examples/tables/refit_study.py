"""Asks what untrained members are good for, plain and refitted, with paired intervals; results/refit.md.

    python tables/refit_study.py NETWORK --table NAME --fit SOURCE --test SOURCE --output FOLDER

A third of the test samples, drawn at random, fits temperatures and thresholds, the others measure. Answers are kept in
the folder, so an interrupted run goes on. Prints Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from refit import batches, logits
from scipy.special import log_softmax, logsumexp

import hydractl
from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.batching import Batch
from hydractl.inference import load_to_compute
from hydractl.inputs.models import as_member
from hydractl.metrics.scaling import fit_temperature
from hydractl.surgery.refit import Refitting, refit

Numbers = NDArray[np.float64]
OBJECTIVES = ("acc", "ood", "avg")
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)  # of the inputs on which the other members are asked


class Answers(NamedTuple):
    """Logits of test samples `[M,N,C]`, and of each OOD set."""

    test: Numbers
    ood: Sequence[Numbers]


class Measured(NamedTuple):
    """Numbers of each sample that measures, in per cent but for the loss, and of each OOD sample."""

    correct: Numbers
    nll: Numbers
    above: Numbers  # of each sample, the share of OOD samples of lower confidence: the mean is the AUROC
    below: Sequence[Numbers]  # of each OOD sample of each set, the share of test samples of higher confidence

    def beside(self, other: Measured) -> str:
        """Returns three cells: each number, and the 95 % interval of its difference to another's."""
        odd = sum(np.var(a - b) / len(a) for a, b in zip(self.below, other.below, strict=True)) / len(self.below) ** 2
        return " | ".join(
            (
                f"{self.correct.mean():.2f} ({interval(self.correct - other.correct, 1)})",
                f"{self.nll.mean():.3f} ({interval(self.nll - other.nll)})",
                f"{self.above.mean():.1f} ({interval(self.above - other.above, 1, odd)})",
            )
        )


class Study:
    """A network, the samples, and what networks made of it answer."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.folder = given, Path(given.output)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.network = as_member(given.network)
        self.tower, *_ = self.network.spec.towers
        self.test = batches(self.network, given.test, given.samples)
        self.order = torch.cat([batch.positions for batch in self.test]).argsort().numpy()  # texts come by length
        # Data may be sorted by class, so that the first third holds some classes only.
        self.shuffle = np.random.default_rng(0).permutation(len(self.order))
        labels = torch.cat([batch.labels for batch in self.test if batch.labels is not None]).numpy()
        self.labels = labels[self.order][self.shuffle]
        self.fitting = len(self.labels) // 3  # samples that fit temperatures

    @cached_property
    def ood(self) -> list[list[Batch]]:
        return [batches(self.network, source, self.given.outside) for source in self.given.ood]

    @cached_property
    def scoring(self) -> list[Batch]:
        return batches(self.network, self.given.fit, self.given.inputs)

    def refitted(
        self,
        pruned: Checkpoint,
        before: Checkpoint | None = None,
        on: Sequence[Batch] | None = None,
        ridge: float | None = None,
    ) -> Checkpoint:
        target = load_to_compute(before or self.network, torch.device("cpu"), None)
        return refit(target, pruned, {self.tower.name: on or self.scoring}, Refitting(ridge=ridge))

    def formed(self, pruned: Checkpoint, form: str) -> Checkpoint:
        return self.refitted(pruned) if form == "refitted" else pruned

    def answers(self, name: str, make: Callable[[], Checkpoint]) -> Numbers:
        """Returns the logits `[M,N,C]` of a network that is made if they are not in the folder."""
        file = self.folder / f"{name}.npy"
        if not file.exists():
            np.save(file, logits(make(), self.test)[:, self.order])
        return np.load(file)[:, self.shuffle]

    def together(self, name: str, pruned: Sequence[Checkpoint], refits: bool) -> Numbers:
        """Returns the logits `[1+M,N,C]` of the network and members, plain or refitted; the trunk runs once."""

        def make() -> Checkpoint:
            members = [self.refitted(one) for one in pruned] if refits else pruned
            return hydractl.fuse([self.network, *members], separate="all").checkpoint

        return self.answers(f"{name}-{'refitted' if refits else 'plain'}", make)

    def answers_with_ood(self, name: str, make: Callable[[], Checkpoint]) -> Answers:
        """Returns the logits of the test samples and of each OOD set."""
        file = self.folder / f"{name}-ood.npz"
        if not file.exists():
            checkpoint = make()
            self.answers(name, lambda: checkpoint)
            np.savez(file, *(logits(checkpoint, each) for each in self.ood))
        with np.load(file) as kept:
            return Answers(np.load(self.folder / f"{name}.npy")[:, self.shuffle], [kept[key] for key in kept.files])

    def temperature(self, members: Numbers) -> float:
        fit = slice(self.fitting)
        return fit_temperature(members[:, fit], self.labels[fit]).temperature

    def log_p(self, members: Numbers) -> Numbers:
        """Returns the log-probabilities `[N,C]` of members together, at the temperature of the first samples."""
        return mean_log_p(members / self.temperature(members))

    def measured(self, systems: Sequence[Sequence[Answers]]) -> Measured:
        """Returns the numbers of systems of members, the mean over systems."""
        return Measured(*(_mean(column) for column in zip(*map(self._measured, systems), strict=True)))

    def _measured(self, members: Sequence[Answers]) -> Measured:
        test = np.concatenate([each.test for each in members])
        log_p, t = self.log_p(test), self.temperature(test)
        inside = log_p.max(-1)[self.fitting :]
        outside = [mean_log_p(np.concatenate(each) / t).max(-1) for each in zip(*(m.ood for m in members), strict=True)]
        above = np.mean([share_below(inside, each) for each in outside], 0)
        return Measured(
            self.correct(log_p),
            self.nll(log_p),
            100 * above,
            [100 - 100 * share_below(each, inside) for each in outside],
        )

    def nll(self, log_p: Numbers) -> Numbers:
        """Returns the loss of each sample that measures."""
        return -log_p[np.arange(self.fitting, len(self.labels)), self.labels[self.fitting :]]

    def correct(self, log_p: Numbers) -> Numbers:
        return 100.0 * (log_p.argmax(-1) == self.labels)[self.fitting :]

    def cost(self, members: Sequence[Checkpoint]) -> float:
        """Returns the multiply-adds of members fused, in those of the network."""
        fused = hydractl.fuse(members).checkpoint if len(members) > 1 else members[0]
        return multiply_adds(fused.spec, fused.layout) / multiply_adds(self.network.spec, self.network.layout)

    def random(self, heads: int, trunk: int | None = None, draw: int = 0, **options: object) -> list[Checkpoint]:
        """Returns three members without random heads."""
        return [
            hydractl.prune(
                self.network, method="random", budget=heads, trunk=trunk, seed=3 * draw + seed, **options
            ).checkpoint
            for seed in range(3)
        ]

    def without_units(self, trunk: int) -> list[Checkpoint]:
        """Returns three members that each keep half of the MLP units above a trunk, by deviation."""
        units = (self.tower.layers - trunk) * self.tower.mlp_width // 2
        how = {"method": "deviation", "id_data": self.given.fit, "limit": self.given.inputs}
        return hydractl.prune(self.network, budget=0, units=units, members=3, trunk=trunk, **how).checkpoints


def _mean(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], np.ndarray):
        return np.mean(columns, axis=0)
    return [np.mean(each, axis=0) for each in zip(*columns, strict=True)]


def mean_log_p(logits: Numbers) -> Numbers:
    """Returns the logarithm `[N,C]` of the mean probability of members `[M,N,C]`."""
    return logsumexp(log_softmax(logits, -1), 0) - np.log(len(logits))


def share_below(confidence: Numbers, others: Numbers) -> Numbers:
    """Returns for each confidence the share of others below it, ties counting one half."""
    ordered = np.sort(others)
    places = (np.searchsorted(ordered, confidence, side) for side in ("left", "right"))
    return sum(places) / (2 * len(others))


def interval(differences: Numbers, digits: int = 3, variance: float = 0.0) -> str:
    """Returns the 95 % interval of a mean of paired differences, and of what varies beside it."""
    half = 1.96 * np.sqrt(differences.var(ddof=1) / len(differences) + variance)
    return f"{differences.mean() - half:+.{digits}f} to {differences.mean() + half:+.{digits}f}"


def doubt(study: Study) -> None:
    """The network first; the others only where its confidence is low."""
    layers, heads = study.tower.layers, study.tower.heads
    deep = layers - layers // 2
    thin = study.without_units(layers // 2)
    systems = {
        "heads": lambda draw: study.random(deep * heads // 3, layers // 2, draw),
        "units": lambda draw: study.without_units(layers * 2 // 3),
        "heads and units": lambda draw: [
            hydractl.prune(
                one, method="random", budget=deep * heads // 3, trunk=layers // 2, scope="layer", seed=3 * draw + number
            ).checkpoint
            for number, one in enumerate(thin)
        ],
    }
    dense = study.answers("network", lambda: study.network)
    print("| members | asked % | mean cost | of the full cost % | accuracy % | NLL | gained NLL | of the full gain % |")
    print("|---|---|---|---|---|---|---|---|")
    alone = study.log_p(dense)
    accuracy, nll = study.correct(alone).mean(), study.nll(alone).mean()
    print(f"| none | 0 | 1.00 | | {accuracy:.2f} | {nll:.4f} | | |")
    for name, make in systems.items():
        drawn = [make(draw) for draw in range(1 if name == "units" else study.given.draws)]
        cost = study.cost([study.network, *drawn[0]])
        for refits in (False, True):
            together = [
                study.log_p(study.together(f"{name}-{draw}", members, refits)) for draw, members in enumerate(drawn)
            ]
            for share in SHARES:
                row = in_doubt(study, alone, together, share, cost)
                print(f"| {name}, {'refitted' if refits else 'plain'} | {row} |", flush=True)


def in_doubt(study: Study, alone: Numbers, together: Sequence[Numbers], share: float, cost: float) -> str:
    """Returns a row: means over draws, and the interval of their mean's gain over samples."""
    confidence = alone.max(-1)
    threshold = np.quantile(confidence[: study.fitting], share) if share < 1 else np.inf
    asked = confidence < threshold
    answers = [np.where(asked[:, None], log_p, alone) for log_p in together]
    gain, full = (
        np.mean([study.nll(alone) - study.nll(log_p) for log_p in each], axis=0) for each in (answers, together)
    )
    mean_cost = 1 + asked[study.fitting :].mean() * (cost - 1)
    accuracy = np.mean([study.correct(log_p).mean() for log_p in answers])
    generator = np.random.default_rng(0)
    picks = generator.integers(len(gain), size=(2000, len(gain)))
    low, high = np.percentile(100 * gain[picks].mean(1) / full[picks].mean(1), (2.5, 97.5))
    kept = f"{100 * gain.mean() / full.mean():.0f} ({low:.0f} to {high:.0f})"
    costs = f"{100 * asked[study.fitting :].mean():.0f} | {mean_cost:.2f} | {100 * mean_cost / cost:.0f}"
    nll = np.mean([study.nll(log_p).mean() for log_p in answers])
    return f"{costs} | {accuracy:.2f} | {nll:.4f} | {interval(gain, 4)} | {kept}"


def circuits(study: Study) -> None:
    """Which heads should go, plain and refitted?"""
    given = study.given
    dense = study.measured([[study.answers_with_ood("network", lambda: study.network)]])
    print("| heads, by | form | accuracy % | NLL | AUROC % |\n|---|---|---|---|---|")
    print(f"| network | | {dense.beside(dense)} |")
    for budget in given.heads:
        chosen = {
            "taylor": [hydractl.prune(study.network, method="taylor", id_data=given.fit, limit=1000, budget=budget)],
            "circuit": [
                hydractl.prune(study.network, method="circuit", circuit=c, budget=budget) for c in given.circuit
            ],
            "random": [hydractl.prune(study.network, method="random", seed=seed, budget=budget) for seed in range(3)],
        }
        best = {}
        for form in ("plain", "refitted"):
            found = {
                f"{name}{number}": study.answers_with_ood(
                    f"{name}{number}-{budget}-{form}",
                    partial(study.formed, one.checkpoint, form),
                )
                for name, members in chosen.items()
                for number, one in enumerate(members)
            }
            rows = {name: [[found[name]]] for name in found if not name.startswith("random")}
            draws = [answers for name, answers in found.items() if name.startswith("random")]
            searched = [answers for name, answers in found.items() if name.startswith("circuit")]
            rows |= {"random, mean": [[each] for each in draws], "three random": [draws]}
            if searched:
                rows["circuits together"] = [searched]
            for name, systems in rows.items():
                measured = best[name, form] = study.measured(systems)
                print(f"| {budget}, {name} | {form} | {measured.beside(dense)} |", flush=True)
        print(f"\nDifference of {budget} refitted to plain, and to random refitted:\n")
        for name, form in best:
            if form == "refitted":
                print(f"| {name} | to plain | {best[name, form].beside(best[name, 'plain'])} |")
                like = "random, mean" if name[-1].isdigit() else "three random"
                print(f"| {name} | to {like} | {best[name, form].beside(best[like, form])} |", flush=True)


def searched(study: Study) -> None:
    """Heads by Taylor scores, or by a circuit search, of a network that is refitted again and again on the way."""
    given = study.given
    dense = study.measured([[study.answers_with_ood("network", lambda: study.network)]])
    print("| heads, by | accuracy % | NLL | AUROC % |\n|---|---|---|---|")
    for budget in given.heads:
        drawn = [
            study.answers_with_ood(f"random{draw}-{budget}-refitted", partial(study.refitted, member))
            for draw, member in enumerate(study.random(budget))
        ]
        ways = {"taylor": partial(by_taylor, study)}
        ways |= {objective: partial(by_circuit, study, objective) for objective in OBJECTIVES if given.search_ood}
        found = {
            name: study.answers_with_ood(f"{name}-{budget}-searched", partial(search, study, budget, take))
            for name, take in ways.items()
        }
        rows = {name: [[answers]] for name, answers in found.items()}
        if given.search_ood:
            rows["three circuits"] = [[found[objective] for objective in OBJECTIVES]]
        rows |= {"random, refitted at the end, mean": [[each] for each in drawn], "three of these": [drawn]}
        for name, systems in rows.items():
            print(f"| {budget}, {name} | {study.measured(systems).beside(dense)} |", flush=True)
        for name, systems in rows.items():
            like = [drawn] if len(systems[0]) > 1 else [[each] for each in drawn]
            print(
                f"| {budget}, {name}, to random | {study.measured(systems).beside(study.measured(like))} |", flush=True
            )


def search(study: Study, budget: int, take: Callable[[Checkpoint, int], Checkpoint]) -> Checkpoint:
    """Returns the network without heads, taken a few at a time and refitted after each time."""
    network, step = study.network, study.given.step or study.tower.layers
    for start in range(0, budget, step):
        network = study.refitted(take(network, min(step, budget - start)))
    return network


def by_taylor(study: Study, network: Checkpoint, count: int) -> Checkpoint:
    how = {"method": "taylor", "id_data": study.given.fit, "limit": study.given.inputs}
    return hydractl.prune(network, budget=count, **how).checkpoint


def by_circuit(study: Study, objective: str, network: Checkpoint, count: int) -> Checkpoint:
    given = study.given
    data = {"id_data": given.search_id or given.fit, "ood_data": given.search_ood, "limit": given.search_samples}
    circuit = hydractl.extract_circuit(network, **data, objective=objective, budget=count)
    return hydractl.prune(network, method="circuit", circuit=circuit, budget=count).checkpoint


def counts(study: Study) -> None:
    """How many inputs does a refit need, with a fixed ridge and with one that each map chooses?"""
    given = study.given
    dense = study.measured([[study.answers_with_ood("network", lambda: study.network)]])
    print("| heads, inputs | members, mean: accuracy % | NLL | AUROC % | three: accuracy % | NLL | AUROC % |")
    print("|---|---|---|---|---|---|---|")
    for budget in given.heads:
        drawn, usual = study.random(budget), []
        for count in (given.inputs, *given.counts):
            fixed, chosen = (refitted_on(study, budget, drawn, count, ridge) for ridge in (1e-3, None))
            usual = usual or chosen
            rows = {"fixed": (fixed, [dense, dense]), "chosen": (chosen, [dense, dense])}
            rows |= {"chosen, to fixed": (chosen, fixed), f"chosen, to {given.inputs}": (chosen, usual)}
            for name, (measured, others) in rows.items():
                cells = " | ".join(each.beside(other) for each, other in zip(measured, others, strict=True))
                print(f"| {budget}, {count}, {name} | {cells} |", flush=True)


def refitted_on(
    study: Study, budget: int, drawn: Sequence[Checkpoint], count: int, ridge: float | None
) -> list[Measured]:
    """Returns the mean of members that are refitted on so many inputs, and the members together."""
    made = partial(study.refitted, on=batches(study.network, study.given.fit, count), ridge=ridge)
    name = f"{budget}-refitted-{count}-{ridge or 'chosen'}"
    answers = [
        study.answers_with_ood(f"random{draw}-{name}", partial(made, member)) for draw, member in enumerate(drawn)
    ]
    return [study.measured([[each] for each in answers]), study.measured([answers])]


TABLES = {"doubt": doubt, "circuits": circuits, "searched": searched, "inputs": counts}


def options(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("--fit", required=True, help="samples to refit on, and to score by")
    parser.add_argument("--test", required=True, help="labelled samples to measure on")
    parser.add_argument("--output", required=True, help="folder for answers")
    parser.add_argument("--inputs", type=int, default=1000, help="samples to refit on")
    parser.add_argument("--counts", nargs="*", type=int, default=[], help="of samples to refit on, beside `inputs`")
    parser.add_argument("--samples", type=int, default=4000, help="samples to measure on")
    parser.add_argument("--ood", nargs="*", default=[], help="OOD data to measure detection on")
    parser.add_argument("--outside", type=int, default=400, help="samples of each")
    parser.add_argument("--circuit", nargs="*", default=[], help="circuits to follow")
    parser.add_argument("--search-id", help="labelled samples to search circuits on; default: those of `fit`")
    parser.add_argument("--search-ood", nargs="*", default=[], help="OOD data to search circuits on, other than `ood`")
    parser.add_argument("--search-samples", type=int, default=300, help="samples of each set to search circuits on")
    parser.add_argument("--step", type=int, help="heads between two refits of a search; default: one a layer")
    parser.add_argument("--heads", nargs="*", type=int, default=[4, 6, 12], help="heads that a member loses")
    parser.add_argument("--draws", type=int, default=1, help="of three members each")
    return parser


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--table", choices=TABLES, default="doubt")
    given = parser.parse_args()
    TABLES[given.table](Study(given))


if __name__ == "__main__":
    main()
