"""The paper's analyses of one network: how its circuits overlap, B.1, B.3, B.5, B.6 and shift.

    make -C examples analyses     on the digits example; analyses.mk says how to run it on a network of your own

Heads are chosen on `--search-id` and `--search-ood`; everything is measured on `--test-id` and `--test-ood`. Each
analysis leaves its JSON in the folder, and is not run again where that lies there; `summary.txt` holds all tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import hydractl

OBJECTIVES = ("acc", "ood", "avg")
SEEDS = 3  # of each thing that is varied; two more members are drawn for B.6
#: What --quick leaves of it.
QUICK = {
    "limit": 40,
    "search_limit": 40,
    "steps": 2,
    "draws": 2,
    "sweep": "2,4",
    "noise": "contrast:5",
    "shift": "contrast,pixelate:1-2",
}


class Analyses:
    """The analyses of the network and the data that were named; each returns what it found as lines and as JSON."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.folder = asked, Path(asked.folder)
        self.members = SEEDS if asked.quick else SEEDS + 2
        self.reading = {"limit": asked.limit, "match_labels": asked.match_labels}
        self.searching = {**self.reading, "limit": asked.search_limit or asked.limit}
        self.found: dict[str, Any] = {}

    def circuits(self) -> None:
        """Three circuits and Taylor scores, made once."""
        inside, outside = self.asked.search_id, self.asked.search_ood
        if not all(self.circuit(objective).exists() for objective in OBJECTIVES):
            hydractl.extract_circuit(
                self.asked.model, id_data=inside, ood_data=outside, objective=",".join(OBJECTIVES), resume=True,
                budget=self.asked.rank, search=self.asked.search,
                output=self.folder / "circuit-{objective}.json", force=True, **self.searching,
            )  # fmt: skip
        if not self.scores.exists():
            hydractl.score_heads(
                self.asked.model, method="taylor", id_data=inside, output=self.scores, force=True, **self.searching
            )

    def circuit(self, objective: str = "avg") -> Path:
        return self.folder / f"circuit-{objective}.json"

    @property
    def scores(self) -> Path:
        return self.folder / "taylor.json"

    def overlap(self) -> Any:
        """Circuits with each other, and with Taylor's choice."""
        return hydractl.analyse_overlap([*map(self.circuit, OBJECTIVES), self.scores], budget=self.asked.budget)

    def noise(self) -> Any:
        """B.1: what pruning does to the loss on noisy data."""
        pruned = hydractl.prune(self.asked.model, method="circuit", circuit=self.circuit(), budget=self.asked.budget)
        return hydractl.analyse_noise(
            self.asked.model, pruned, corrupt=self.asked.noise, noise_draws=self.asked.draws,
            id_data=self.asked.test_id, **self.reading,
        )  # fmt: skip

    def budgets(self) -> Any:
        """B.3: at every budget, by the circuit and by Taylor scores."""
        return hydractl.analyse_budgets(
            self.asked.model, circuit=[self.circuit()], scores=[self.scores], budgets=self.asked.sweep,
            id_data=self.asked.test_id, ood_data=self.asked.test_ood, **self.reading,
        )  # fmt: skip

    def drawn(self, seed: int) -> Any:
        """The heads of a member, drawn from the circuit's first."""
        return hydractl.prune(
            self.asked.model, method="circuit", circuit=self.circuit(), budget=self.asked.budget,
            pool=self.asked.pool, seed=seed,
        )  # fmt: skip

    def tuned(self, name: str) -> list[Path]:
        """Members that differ in one thing alone, fine-tuned: in their heads, in the batches' order, or in dropout."""
        seeds = range(self.members if name == "pruning" else SEEDS)
        files = [self.folder / f"{name}{seed}.safetensors" for seed in seeds]
        fixed = {"order_seed": None if name == "order" else 0, "noise_seed": None if name == "noise" else 0}
        if not all(file.exists() for file in files):
            hydractl.finetune(
                [self.drawn(seed if name == "pruning" else 0) for seed in seeds], train_data=self.asked.tune_on,
                recipe=self.asked.recipe, steps=self.asked.steps, precision=self.asked.precision,
                match_labels=self.asked.match_labels, force=True, output=self.folder / f"{name}{{member}}.safetensors",
                **fixed,
            )  # fmt: skip
        return files

    def diversity(self) -> Any:
        """B.5: how much members disagree that differ in one seed alone."""
        systems = {name: self.tuned(name)[:SEEDS] for name in ("pruning", "order", "noise")}
        return self.evaluated(systems)

    def members_curve(self) -> Any:
        """B.6: what every member more brings."""
        return self.evaluated({"hydra": hydractl.fuse(self.tuned("pruning"))}, members_curve=True)

    def shift(self) -> Any:
        """Accuracy and calibration by kind and severity: the network, by Taylor scores, by its circuit, and fused."""
        taylor = hydractl.prune(self.asked.model, method="scores", scores=self.scores, budget=self.asked.budget)
        circuit = hydractl.prune(self.asked.model, method="circuit", circuit=self.circuit(), budget=self.asked.budget)
        hydra = hydractl.fuse(self.tuned("pruning")[:SEEDS])
        systems = {"single": self.asked.model, "taylor": taylor, "circuit": circuit, "hydra": hydra}
        return self.evaluated(systems, corrupt=self.asked.shift)

    def evaluated(self, systems: dict[str, Any], **options: Any) -> Any:
        return hydractl.evaluate(
            systems, id_data=self.asked.test_id, ood_data=self.asked.test_ood, bootstrap=0, **options,
            **self.reading,
        )  # fmt: skip

    def asked_for(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Each analysis by the name of its file."""
        yield "overlap", self.overlap
        if self.asked.noise:
            yield "noise", self.noise
        yield "budgets", self.budgets
        yield "diversity", self.diversity
        yield "members", self.members_curve
        if self.asked.shift:
            yield "shift", self.shift


def diversity_lines(report: dict[str, Any]) -> Iterator[str]:
    """B.5's table: mutual information in nats and disagreement, each on ID data and in the mean over OOD sets."""
    yield f"{'varied':<8}  accuracy     MI ID    MI OOD  disagr. ID  disagr. OOD"
    for name, entry in report["models"].items():
        sets = entry["ood"].values()
        figures = [
            value
            for metric in ("mutual_information", "disagreement")
            for value in (entry["id"][metric], fmean(one[metric] for one in sets))
        ]
        mi_id, mi_ood, disagreed_id, disagreed_ood = figures
        yield (
            f"{name:<8}  {entry['id']['accuracy']:8.2%}  {mi_id:8.2g}  {mi_ood:8.2g}  {disagreed_id:10.4f}  "
            f"{disagreed_ood:11.4f}"
        )


def main(asked: argparse.Namespace) -> None:
    analyses = Analyses(asked)
    analyses.folder.mkdir(parents=True, exist_ok=True)
    analyses.circuits()
    for name, run in analyses.asked_for():
        table, file = analyses.folder / f"{name}.txt", analyses.folder / f"{name}.json"
        if not file.exists():
            found = run()
            lines = diversity_lines(found.to_json()) if name == "diversity" else found.lines()
            table.write_text(f"## {name}: {run.__doc__}\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
            file.write_text(json.dumps(found.to_json(), indent=1), encoding="utf-8")
    tables = [(analyses.folder / f"{name}.txt").read_text(encoding="utf-8") for name, _ in analyses.asked_for()]
    (analyses.folder / "summary.txt").write_text("\n".join(tables), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder")
    for name in ("search-id", "test-id", "tune-on", "recipe"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("search-ood", "test-ood"):
        parser.add_argument(f"--{name}", nargs="+", required=True)
    for name in ("steps", "budget", "pool", "draws", "limit"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--rank", default="all")
    parser.add_argument("--search", default="exact")
    parser.add_argument("--search-limit", type=int, default=0)
    parser.add_argument("--precision", default="no")
    for name in ("sweep", "noise", "shift"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--match-labels", default="name")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        vars(given).update({name: value for name, value in QUICK.items() if vars(given)[name]})
    if given.rank != "all" and given.pool > int(given.rank):
        parser.error(f"--pool {given.pool}: circuits rank {given.rank} heads only: lower it, or raise --rank")
    main(given)
