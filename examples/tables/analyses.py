"""The paper's analyses of one network: how its circuits overlap, B.1, B.3, B.5, B.6 and shift.

    python tables/analyses.py [--quick] [--model ...]     in examples/; digits, the default, need `make digits`

Heads are chosen on `search_*`; everything is measured on `test_*`. Each analysis leaves its JSON in the output folder,
and is not run again where that lies there; `summary.txt` holds all tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from common import HERE, circuits, made, made_each, read_settings

import hydractl

from budgets import budgets  # isort: skip
from noise import noise  # isort: skip
from overlap import overlap  # isort: skip

SEEDS = range(3)  # of each thing that is varied


@dataclass(frozen=True)
class Settings:
    output: Path = Path("build/analyses")
    model: str = "{made}/vit"
    search_id: str = "{made}/data/digits:validation"
    search_ood: tuple[str, ...] = ("{made}/data/near_search",)
    search_limit: int = 1000
    rank: str = "all"  # heads that circuits rank
    train: str = "{made}/data/digits:train"
    recipe: str = str(HERE.parent / "digits.toml")
    set: tuple[str, ...] = ("steps=300",)  # settings of the recipe
    precision: str = "no"
    members: int = 5  # that B.6 adds one after the other, 3 at least
    test_id: str = "{made}/data/digits:test"
    test_ood: tuple[str, ...] = ("near/digits6and7={made}/data/near_test", "far/photo2={made}/data/far_test")
    limit: int = 1000
    budget: int = 4
    pool: int = 8  # the circuit's first heads, from which members draw
    sweep: str = "2,4,6,8"  # budgets of B.3
    noise: str = "gaussian_noise,shot_noise,impulse_noise,contrast:3"  # nothing for texts
    draws: int = 16  # of the signs that B.1 estimates curvature by
    shift: str = "all:1-5"  # nothing for texts


DIGITS = Settings()
QUICK = replace(
    DIGITS, search_limit=20, set=("steps=2", "batch=4"), members=3, limit=40, sweep="2,4", noise="contrast:5", draws=2,
    shift="contrast,pixelate:1-2",
)  # fmt: skip


class Analyses:
    """The analyses of a network; each returns what it found as lines and as JSON."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.output, self.model = settings, settings.output, settings.model
        s = settings
        searched = {"id_data": s.search_id, "ood_data": s.search_ood, "limit": s.search_limit, "budget": s.rank}
        self.circuits = circuits(self.output, self.model, **searched)
        self.circuit = self.circuits[-1]
        self.scores = made(
            self.output / "taylor.json", hydractl.score_heads, self.model, method="taylor", id_data=s.search_id,
            limit=s.search_limit,
        )  # fmt: skip

    def overlap(self) -> Any:
        """Circuits with each other, and with Taylor's choice."""
        return overlap([*self.circuits, self.scores], budget=self.settings.budget)

    def noise(self) -> Any:
        """B.1: what pruning does to the loss on noisy data."""
        s = self.settings
        pruned = self.pruned(method="circuit", circuit=self.circuit)
        return noise(self.model, pruned, s.noise, s.test_id, draws=s.draws, limit=s.limit)

    def budgets(self) -> Any:
        """B.3: at every budget, by the circuit and by Taylor scores."""
        s = self.settings
        return budgets(
            self.model, circuit=[self.circuit], scores=[self.scores], budgets=s.sweep, id_data=s.test_id,
            ood_data=s.test_ood, limit=s.limit,
        )  # fmt: skip

    def pruned(self, **how: Any) -> Any:
        return hydractl.prune(self.model, budget=self.settings.budget, **how)

    def drawn(self, seed: int) -> Any:
        """Returns a member without heads drawn from the circuit's first."""
        return self.pruned(method="circuit", circuit=self.circuit, pool=self.settings.pool, seed=seed)

    def tuned(self, name: str) -> list[Path]:
        """Returns members that differ in one thing alone: in their heads, in the batches' order, or in dropout."""
        s, seeds = self.settings, SEEDS if name != "pruning" else range(self.settings.members)
        fixed = {"order_seed": None if name == "order" else 0, "noise_seed": None if name == "noise" else 0}
        return made_each(
            self.output / f"{name}{{member}}.safetensors", "member", seeds, hydractl.finetune,
            [self.drawn(seed if name == "pruning" else 0) for seed in seeds], train_data=s.train, recipe=s.recipe,
            settings=s.set, precision=s.precision, resume=True, **fixed,
        )  # fmt: skip

    def diversity(self) -> Any:
        """B.5: how much members disagree that differ in one seed alone."""
        return self.evaluated({name: self.tuned(name)[: len(SEEDS)] for name in ("pruning", "order", "noise")})

    def members(self) -> Any:
        """B.6: what every member more brings."""
        hydra = made(self.output / "hydra.safetensors", hydractl.fuse, self.tuned("pruning"))
        firsts = (",".join(map(str, range(size))) for size in range(1, self.settings.members))
        return self.evaluated({f"hydra:{first}": f"{hydra}:{first}" for first in firsts} | {"hydra": hydra})

    def shift(self) -> Any:
        """Accuracy and calibration by kind and severity: the network, by Taylor scores, by its circuit, and fused."""
        taylor = self.pruned(method="scores", scores=self.scores)
        circuit = self.pruned(method="circuit", circuit=self.circuit)
        hydra = hydractl.fuse(self.tuned("pruning")[: len(SEEDS)])
        systems = {"single": self.model, "taylor": taylor, "circuit": circuit, "hydra": hydra}
        return self.evaluated(systems, corrupt=self.settings.shift)

    def evaluated(self, systems: dict[str, Any], **options: Any) -> Any:
        s = self.settings
        data = {"id_data": s.test_id, "ood_data": s.test_ood, "limit": s.limit}
        return hydractl.evaluate(systems, bootstrap=0, **data, **options)

    def wanted(self) -> Iterator[Callable[[], Any]]:
        """Yields each analysis, whose name is that of its file."""
        yield self.overlap
        if self.settings.noise:
            yield self.noise
        yield from (self.budgets, self.diversity, self.members)
        if self.settings.shift:
            yield self.shift


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


def main(settings: Settings) -> None:
    tables = []
    for run in Analyses(settings).wanted():
        name = run.__name__
        table, file = settings.output / f"{name}.txt", settings.output / f"{name}.json"
        if not file.exists():
            found = run()
            lines = diversity_lines(found.to_json()) if name == "diversity" else found.lines()
            table.write_text(f"## {name}: {run.__doc__}\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
            file.write_text(json.dumps(found.to_json(), indent=1), encoding="utf-8")
        tables.append(table.read_text(encoding="utf-8"))
    (settings.output / "summary.txt").write_text("\n".join(tables), encoding="utf-8")
    print("\n".join(tables))


if __name__ == "__main__":
    main(read_settings(__doc__, {"digits": (DIGITS, QUICK)}))
