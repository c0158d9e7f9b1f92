"""The paper's table for one network: every system on the same samples, untrained and fine-tuned, at several budgets.

    python tables/paper.py [--quick] [--model ...]     in examples/; digits, the default, need `make digits`

Circuits are searched on `search_*`, members selected on `choose_*`, and temperatures fitted on `fit_id`; everything is
measured on `test_*`, which chose nothing. Every member of every trained system trains alike, on labels or, where it is
taught, on what the network or the Deep Ensemble says in their place. What lies in the output folder is not made again,
so an interrupted run goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common import HERE, OBJECTIVES, THREE, circuits, made, made_each, print_table, read_settings

import hydractl


@dataclass(frozen=True)
class Settings:
    output: Path = Path("build/table")
    model: str = "{made}/vit"
    ensemble: tuple[str, ...] = ()  # networks of other seeds, the first the model itself; none: copies that train on
    also: tuple[str, ...] = ()  # further rows, NAME=SYSTEM
    train: str = "{made}/data/digits:train"
    recipe: str = str(HERE.parent / "digits.toml")
    set: tuple[str, ...] = ("lr=3e-4", "steps=300")  # settings of the recipe
    precision: str = "no"
    search_id: str = "{made}/data/digits:validation%1/3"
    search_ood: tuple[str, ...] = ("{made}/data/near_search%1/2",)
    search_limit: int = 1000
    rank: int = 8  # heads that circuits rank
    choose_id: str = "{made}/data/digits:validation%2/3"
    limit: int = 1000  # samples to select members on, and for Taylor scores
    fit_id: str = "{made}/data/digits:validation%3/3"
    fit_ood: tuple[str, ...] = ()  # if given, each file gets the OOD score that does best on these, too
    test_id: str = "{made}/data/digits:test"
    test_ood: tuple[str, ...] = ("near/digits6and7={made}/data/near_test", "far/photo2={made}/data/far_test")
    test_limit: int = 100_000
    budgets: tuple[int, ...] = (2, 4, 6, 8)
    tuned_budgets: tuple[int, ...] = (4, 8)  # at which members train
    trunks: tuple[int, ...] = (1, 2, 3)  # layers that selected members share
    dropout: float = 0.1  # of MC Dropout
    bootstrap: int = 1000


DIGITS = Settings()
QUICK = replace(
    DIGITS, set=("steps=2", "batch=4"), search_limit=12, limit=40, test_limit=100, budgets=(2, 6), tuned_budgets=(2,),
    trunks=(1,), bootstrap=100,
)  # fmt: skip


class Systems:
    """All systems of one network, each made when it is asked for and kept in the folder."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.output, self.model = settings, settings.output, settings.model
        self.training = {
            "train_data": settings.train,
            "recipe": settings.recipe,
            "settings": settings.set,
            "precision": settings.precision,
            "resume": True,
        }

    def rows(self) -> Iterator[tuple[str, Any]]:
        """Yields every system with its name in the table."""
        s, copies = self.settings, self.dense()
        yield "single", self.model
        yield "tuned", copies[0]
        yield "mc-dropout", f"{self.model},mc-dropout=10,p={s.dropout}"
        if s.ensemble:
            yield "deep-ensemble", hydractl.fuse(s.ensemble, separate="all")
        yield "deep-ensemble-tuned", hydractl.fuse(copies, separate="all")
        yield "taught-by-ensemble", self.tuned("taught", self.model, teacher=s.ensemble or copies)
        for budget in s.budgets:
            yield from self.of_budget(budget)
        for depth in (0, *s.trunks):
            yield from self.selected(depth)
        yield from (tuple(entry.split("=", 1)) for entry in s.also)

    def dense(self) -> list[Path]:
        """Returns the networks of the Deep Ensemble, or copies of the one, trained on."""
        copies = self.settings.ensemble or [self.model] * 3
        return [self.tuned(f"dense{seed}", copies[seed], seed) for seed in THREE]

    def of_budget(self, budget: int) -> Iterator[tuple[str, Any]]:
        """Yields what a budget makes: a member alone and the fused ones, for each way of choosing heads."""
        ways = {
            "taylor": [self.taylor(budget, seed) for seed in THREE],
            "circuit": [self.pruned(objective, budget) for objective in OBJECTIVES],
        }
        if budget < self.settings.rank:  # from a pool of as many heads all draws are alike
            ways["draws"] = [self.drawn(budget, seed) for seed in THREE]
        for way, members in ways.items():
            alone = dict(zip(OBJECTIVES, members, strict=True)) if way == "circuit" else {way: members[0]}
            yield from ((f"{name}-{budget}", member) for name, member in alone.items())
            yield f"hydra-{way}-{budget}", hydractl.fuse(members)
            if budget in self.settings.tuned_budgets:
                tuned = [self.tuned(member.stem, member, seed) for seed, member in enumerate(members)]
                yield from ((f"{name}-{budget}-tuned", one) for name, one in zip(alone, tuned, strict=False))
                yield f"hydra-{way}-{budget}-tuned", hydractl.fuse(tuned)

    def circuit(self, objective: str) -> Path:
        s = self.settings
        found = circuits(
            self.output, self.model, id_data=s.search_id, ood_data=s.search_ood, budget=s.rank,
            limit=s.search_limit,
        )  # fmt: skip
        return found[OBJECTIVES.index(objective)]

    def pruned(self, objective: str, budget: int) -> Path:
        """Returns the network without a circuit's first heads."""
        output = self.output / f"{objective}-{budget}.safetensors"
        how = {"method": "circuit", "circuit": self.circuit(objective), "budget": budget}
        return made(output, hydractl.prune, self.model, **how)

    def drawn(self, budget: int, seed: int) -> Path:
        """Returns the network without heads drawn from twice as many of the circuit's first."""
        output = self.output / f"draws{seed}-{budget}.safetensors"
        how = {"pool": min(2 * budget, self.settings.rank), "seed": seed, "budget": budget}
        return made(output, hydractl.prune, self.model, method="circuit", circuit=self.circuit("avg"), **how)

    def taylor(self, budget: int, seed: int) -> Path:
        """Returns the network without its lowest Taylor scores of each layer, on samples that the seed draws."""
        output = self.output / f"taylor{seed}-{budget}.safetensors"
        data = {"id_data": self.settings.train, "samples": self.settings.limit, "seed": seed}
        return made(output, hydractl.prune, self.model, method="taylor", budget=budget, **data)

    def tuned(self, name: str, model: Any, seed: int = 0, **options: Any) -> Path:
        """Returns one network, or one Hydra as it is fused, trained on."""
        output = self.output / "tuned" / f"{name}.safetensors"
        return made(output, hydractl.finetune, model, seed=seed, **options, **self.training)

    def selected(self, trunk: int) -> Iterator[tuple[str, Any]]:
        """Yields members chosen by what they do together, perhaps above a trunk, which then trains as it is fused."""
        s, name = self.settings, f"trunk{trunk}" if trunk else "selected"
        hydra = self.output / f"{name}.safetensors"
        if not hydra.exists():
            hydractl.select(
                self.model, circuit=[self.circuit("ood"), self.circuit("avg")], budgets=",".join(map(str, s.budgets)),
                pools=str(s.rank), draws=4, random=4, trunks=str(trunk or ""), id_data=s.choose_id,
                limit=s.limit, output=self.output / f"{name}.json", hydra=hydra, resume=True,
                force=True,
            )  # fmt: skip
        yield f"hydra-{name}", hydra
        train = self.as_fused if trunk else self.apart
        yield f"hydra-{name}-tuned", train(hydra)
        for by, teacher in {"single": [self.model], "ensemble": s.ensemble or self.dense()}.items():
            yield f"hydra-{name}-taught-by-{by}", train(hydra, f"-by-{by}", teacher=teacher)

    def as_fused(self, hydra: Path, way: str = "", **options: Any) -> Path:
        """Returns a Hydra whose members trained together, so that its trunk stays one."""
        return self.tuned(f"{hydra.stem}{way}", hydra, joint=True, **options)

    def apart(self, hydra: Path, way: str = "", **options: Any) -> Any:
        """Returns the members of a Hydra, each trained on its own, fused again."""
        pattern = self.output / "tuned" / f"{hydra.stem}{way}-{{member}}.safetensors"
        how = {"apart": True, **options, **self.training}
        return hydractl.fuse(made_each(pattern, "member", THREE, hydractl.finetune, hydra, **how))


def calibrated(s: Settings, name: str, system: Any) -> Any:
    """Returns a system with a temperature and the OOD score that does best; MC Dropout as it is."""
    if name == "mc-dropout":
        return system
    output = s.output / "calibrated" / f"{name}.safetensors"
    return made(output, hydractl.calibrate, system, id_data=s.fit_id, ood_data=s.fit_ood)


def main(s: Settings) -> None:
    fit: dict[str, Any] = {} if s.fit_ood else {"calib_data": s.fit_id, "temperature": "fit"}
    systems = dict(Systems(s).rows())
    if s.fit_ood:
        systems = {name: calibrated(s, name, system) for name, system in systems.items()}
    print_table(
        systems, s.output, id_data=s.test_id, ood_data=s.test_ood, limit=s.test_limit, bootstrap=s.bootstrap,
        report=s.output / "report", **fit,
    )  # fmt: skip


if __name__ == "__main__":
    main(read_settings(__doc__, {"digits": (DIGITS, QUICK)}))
