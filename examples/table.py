"""The paper's table for one network: every system on the same samples, untrained and fine-tuned, at several budgets.

    make -C examples table     on the digits example; table.mk says how to run it on a network of your own

Circuits are searched on `--search-id` and `--search-ood`, members selected on `--choose-id` and `--choose-ood`, and
temperatures fitted on `--calibration`; everything is measured on `--test-id` and `--test-ood`, which chose nothing.
Every member of every trained system takes `--steps` of the recipe, on labels or, where it is taught, on what the
network or the Deep Ensemble says in their place. What lies in the folder already is not made again, so a run that was
interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hydractl

OBJECTIVES = ("acc", "ood", "avg")
SEEDS = range(3)
SHARED = {"lora-ensemble": {"rank": 4, "alpha": 8}, "batch-ensemble": {}, "mask-ensemble": {}}
#: What --quick leaves of it.
QUICK = {
    "limit": 40,
    "search_limit": 40,
    "steps": 2,
    "rank": 8,
    "budgets": "2,6",
    "tuned_budgets": "2",
    "trunks": "1",
    "bootstrap": 20,
}


class Systems:
    """All systems of one network, each made when it is asked for and kept in the folder."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.folder = asked, Path(asked.folder)
        self.reading = {"match_labels": asked.match_labels}
        self.training = {
            **self.reading,
            "train_data": asked.train,
            "recipe": asked.recipe,
            "settings": asked.set,
            "steps": asked.steps,
            "precision": asked.precision,
            "resume": True,
        }

    def rows(self) -> Iterator[tuple[str, Any]]:
        """Every system by its name in the table."""
        model, tuned = self.asked.model, self.dense()
        yield "single", model
        yield "tuned", tuned[0]
        yield "mc-dropout", f"{model},mc-dropout=10,p={self.asked.dropout}"
        if self.asked.ensemble:
            yield "deep-ensemble", "+".join(self.asked.ensemble)
        yield "deep-ensemble-tuned", "+".join(map(str, tuned))
        yield "taught-by-ensemble", self.tuned("taught", model, teacher=self.asked.ensemble or tuned)
        for method in SHARED:
            yield method, self.sharing(method)
        for budget in self.asked.budgets.split(","):
            yield from self.of_budget(int(budget))
        yield from self.selected("selected", None)
        for depth in filter(None, self.asked.trunks.split(",")):
            yield from self.selected(f"trunk{depth}", depth)
        yield from (entry.split("=", 1) for entry in self.asked.also)

    def dense(self) -> list[Path]:
        """The networks of the Deep Ensemble, or copies of the one, trained on."""
        copies = self.asked.ensemble or [self.asked.model] * len(SEEDS)
        return [self.tuned(f"dense{seed}", copies[seed], seed) for seed in SEEDS]

    def of_budget(self, budget: int) -> Iterator[tuple[str, Any]]:
        """What fixed budgets make: a member alone and the fused ones, for each way of choosing heads."""
        ways = {
            "taylor": [self.taylor(budget, seed) for seed in SEEDS],
            "circuit": [self.pruned(objective, budget) for objective in OBJECTIVES],
        }
        if budget < self.asked.rank:  # from a pool of as many heads all draws are alike
            ways["draws"] = [self.pruned("avg", budget, seed) for seed in SEEDS]
        tunes = str(budget) in self.asked.tuned_budgets.split(",")
        for way, members in ways.items():
            alone = dict(zip(OBJECTIVES, members, strict=True)) if way == "circuit" else {way: members[0]}
            for name, member in alone.items():
                yield f"{name}-{budget}", member
                if tunes:
                    yield f"{name}-{budget}-tuned", self.tuned(member.stem, member, members.index(member))
            yield f"hydra-{way}-{budget}", hydractl.fuse(members)
            if tunes:
                tuned = [self.tuned(member.stem, member, seed) for seed, member in enumerate(members)]
                yield f"hydra-{way}-{budget}-tuned", hydractl.fuse(tuned)

    def circuit(self, objective: str) -> Path:
        """The circuit of one objective; all are searched in one run."""
        asked, found = self.asked, self.folder / f"circuit-{objective}.json"
        if not found.exists():
            hydractl.extract_circuit(
                asked.model, id_data=asked.search_id, ood_data=asked.search_ood, objective=",".join(OBJECTIVES),
                budget=asked.rank, search=asked.search, heads_per_step=asked.heads_per_step, limit=asked.search_limit,
                resume=True, force=True,
                output=self.folder / "circuit-{objective}.json", **self.reading,
            )  # fmt: skip
        return found

    def pruned(self, objective: str, budget: int, seed: int | None = None) -> Path:
        """The circuit's first heads gone, or, with a seed, as many drawn from twice as many of its first."""
        name = f"{objective}-{budget}" if seed is None else f"draws{seed}-{budget}"
        output = self.folder / f"{name}.safetensors"
        draw = {} if seed is None else {"pool": min(2 * budget, self.asked.rank), "seed": seed}
        if not output.exists():
            hydractl.prune(
                self.asked.model,
                method="circuit",
                circuit=self.circuit(objective),
                budget=budget,
                output=output,
                **draw,
            )
        return output

    def taylor(self, budget: int, seed: int) -> Path:
        """Layer by layer the lowest Taylor scores, on samples that the seed draws."""
        output = self.folder / f"taylor{seed}-{budget}.safetensors"
        if not output.exists():
            hydractl.prune(
                self.asked.model, method="taylor", budget=budget, id_data=self.asked.train, seed=seed, output=output,
                samples=self.asked.limit, **self.reading,
            )  # fmt: skip
        return output

    def tuned(self, name: str, model: Any, seed: int = 0, **options: Any) -> Path:
        """One network, or one Hydra as it is fused, trained on."""
        output = self.folder / "tuned" / f"{name}.safetensors"
        if not output.exists():
            output.parent.mkdir(exist_ok=True)
            hydractl.finetune(model, seed=seed, output=output, **options, **self.training)
        return output

    def sharing(self, method: str) -> Path:
        """An ensemble whose members share the network's weights."""
        return self.tuned(method, self.asked.model, method=method, members=len(SEEDS), **SHARED[method])

    def selected(self, name: str, trunk: str | None) -> Iterator[tuple[str, Any]]:
        """Members chosen by what they do together, perhaps above a trunk, which then trains as it is fused."""
        asked, output = self.asked, self.folder / f"{name}.safetensors"
        if not output.exists():
            hydractl.select(
                asked.model, circuit=[self.circuit("ood"), self.circuit("avg")], budgets=asked.budgets,
                pools=str(asked.rank), draws=4, random=4, trunks=trunk or "", id_data=asked.choose_id,
                ood_data=asked.choose_ood, limit=asked.limit, output=self.folder / f"{name}.json", hydra=output,
                resume=True, force=True, **self.reading,
            )  # fmt: skip
        yield f"hydra-{name}", output
        train = self.as_fused if trunk else self.apart
        yield f"hydra-{name}-tuned", train(output)
        for by, teacher in {"single": [asked.model], "ensemble": asked.ensemble or self.dense()}.items():
            yield f"hydra-{name}-taught-by-{by}", train(output, f"-by-{by}", teacher=teacher)

    def as_fused(self, hydra: Path, way: str = "", **options: Any) -> Path:
        """A Hydra whose members train together, so that its trunk stays one."""
        return self.tuned(f"{hydra.stem}{way}", hydra, joint=True, **options)

    def apart(self, hydra: Path, way: str = "", **options: Any) -> Any:
        """The members of a Hydra, each trained on its own in the way that the options say, and fused again."""
        stem, folder = f"{hydra.stem}{way}", self.folder / "tuned"
        files = [folder / f"{stem}-{seed}.safetensors" for seed in SEEDS]
        if not all(file.exists() for file in files):
            output = folder / f"{stem}-{{member}}.safetensors"
            hydractl.finetune(hydra, apart=True, output=output, **options, **self.training)
        return hydractl.fuse(files)


def main(asked: argparse.Namespace) -> None:
    systems = Systems(asked)
    (systems.folder / "tuned").mkdir(parents=True, exist_ok=True)
    report = hydractl.evaluate(
        dict(systems.rows()), id_data=asked.test_id, ood_data=asked.test_ood, calib_data=asked.calibration,
        temperature="fit", limit=asked.test_limit, bootstrap=asked.bootstrap, match_labels=asked.match_labels,
        report=None if asked.quick else systems.folder / "report", force=True,
    )  # fmt: skip
    (systems.folder / "table.json").write_text(json.dumps(report.to_json(), indent=1), encoding="utf-8")
    (systems.folder / "table.txt").write_text("\n".join(report.lines()) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder")
    for name in ("search-id", "choose-id", "calibration", "test-id", "train", "recipe"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("search-ood", "choose-ood", "test-ood"):
        parser.add_argument(f"--{name}", nargs="+", required=True)
    for name in ("steps", "limit", "rank"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("budgets", "tuned-budgets", "trunks"):
        parser.add_argument(f"--{name}", required=True, help="numbers with commas between")
    parser.add_argument(
        "--ensemble", nargs="*", help="networks of other seeds, the first the network itself; or copies"
    )
    parser.add_argument("--also", nargs="*", default=[], metavar="NAME=SYSTEM", help="further rows")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="of the recipe")
    parser.add_argument("--search", default="exact")
    parser.add_argument("--search-limit", type=int, help="samples of a set to search on; --limit unless given")
    parser.add_argument("--heads-per-step", type=int, default=1)
    parser.add_argument("--precision", default="no")
    parser.add_argument("--dropout", type=float, default=0.1, help="of MC Dropout")
    parser.add_argument("--test-limit", type=int)
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--match-labels", default="name")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        vars(given).update(QUICK)
    if missing := set(given.tuned_budgets.split(",")) - set(given.budgets.split(",")):
        parser.error(f"--tuned-budgets {', '.join(sorted(missing))}: no budget of --budgets")
    given.search_limit = given.search_limit or given.limit
    return given


if __name__ == "__main__":
    main(arguments())
