"""What a build does: its commands in order, each with the part of the data that it may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import exists  # also of names that no path can have
from typing import Any

from hydractl.errors import OptionError
from hydractl.selection.objectives import Objective
from hydractl.steps.limits import Limits
from hydractl.steps.pipeline import Given, Made, Task

HYDRA, NETWORK = "hydra.safetensors", "network.safetensors"
CIRCUITS = ("acc", "ood", "avg")


@dataclass(frozen=True)
class Asked:
    """What a build is asked for."""

    model: Given
    id_data: str
    ood_data: Sequence[str]
    train_data: str | None
    eval_data: str | None
    eval_ood_data: Sequence[str]
    members: int
    objective: Objective
    budgets: str
    draws: int
    random: int
    trunks: str
    max_accuracy_drop: float
    limits: Limits
    teachers: Sequence[str]
    recipe: str | None
    settings: Sequence[str]
    seed: int
    limit: int | None
    search: str
    search_samples: int
    device: str
    dtype: str | None
    precision: str
    batch_size: int

    def inside(self, number: int) -> Given:
        """A part of the ID data: to search on, to select on, to calibrate on, to measure on."""
        count = 3 if self.eval_data else 4
        if number > count:
            return Given("EVAL_DATA", self.eval_data or "")
        return Given("ID_DATA", self.id_data, suffix=f"%{number}/{count}{self._seeded}")

    def outside(self, number: int) -> list[Given]:
        """That part of every OOD set: to search on, to select on, to measure on."""
        count = 2 if self.eval_ood_data else 3
        if number > count:
            return [_ood(f"EVAL_OOD_{i}", text) for i, text in enumerate(self.eval_ood_data, 1)]
        return [_ood(f"OOD_{i}", text, f"%{number}/{count}{self._seeded}") for i, text in enumerate(self.ood_data, 1)]

    @property
    def outliers(self) -> list[Given]:
        """What members learn to be unsure of: the OOD samples of search and selection, where the recipe weighs them.

        Raises:
            OptionError: no such recipe or setting, or members are to train and it does not say how long.
        """
        from hydractl.training.published import choose_recipe

        if self.train_data is None:
            return []
        recipe = choose_recipe(self.recipe, self.settings, {})
        if not recipe.steps and not recipe.epochs:
            raise OptionError("`train_data`: the recipe does not say how long to train: add `settings` epochs=1")
        return [*self.outside(1), *self.outside(2)] if recipe.outlier_weight else []

    @property
    def _seeded(self) -> str:
        return f"@{self.seed}" if self.seed else ""


def _ood(variable: str, text: str, suffix: str = "") -> Given:
    """An OOD set, its group and name apart from its source."""
    name, equals, source = text.rpartition("=") if not exists(text) else ("", "", text)
    return Given(variable, source, f"{name}{equals}", suffix)


def plan(asked: Asked) -> list[Task]:
    """The commands of a build, in order."""
    # Here and below: only a build that is run needs the other steps, not its `--help`.
    from hydractl.steps.calibrate import calibrate
    from hydractl.steps.select import select

    own = {"device": asked.device, "dtype": asked.dtype, "batch_size": asked.batch_size, "limit": asked.limit}
    tasks = _search(asked, own) if asked.ood_data else []
    circuits = [Made(f"circuit-{name}.json") for name in CIRCUITS] if asked.ood_data else []
    tasks.append(
        Task(
            "select",
            select,
            {
                "model": asked.model,
                "circuit": circuits,
                "budgets": asked.budgets,
                **({"pools": "25%,50%", "draws": asked.draws} if circuits and asked.draws else {}),
                "random": asked.random,
                "objective": asked.objective,
                "members": str(asked.members),
                "max_accuracy_drop": asked.max_accuracy_drop,
                "max_cost": asked.limits.multiply_adds,
                "max_parameters": asked.limits.parameters,
                "share_below": "" if asked.trunks == "0" else asked.trunks,
                "seed": asked.seed,
                "id_data": asked.inside(2),
                "ood_data": asked.outside(2) or None,
                "selection": Made("selection.json"),
                "output": Made("selected.safetensors"),
                "resume": True,
                **own,
            },
            ("selection.json", "selected.safetensors"),
            tuple(circuit.name for circuit in circuits),
        )
    )
    last = "selected.safetensors"
    if asked.train_data is not None:
        tasks += _training(asked, last)
        last = "fused.safetensors"
    for model, name in ((Made(last), HYDRA), (asked.model, NETWORK)):
        values = {"model": model, "data": asked.inside(3), "output": Made(name), **own}
        tasks.append(Task("calibrate", calibrate, values, (name,), (last,) if name == HYDRA else ()))
    tasks.append(_evaluation(asked, own))
    return tasks


def _search(asked: Asked, own: Mapping[str, Any]) -> list[Task]:
    from hydractl.steps.extract_circuit import extract_circuit

    values = {
        "model": asked.model,
        "id_data": asked.inside(1),
        "ood_data": asked.outside(1),
        "budget": "50%",
        "objective": ",".join(CIRCUITS),
        "search": asked.search,
        "output": Made("circuit-{objective}.json"),
        "resume": True,
        **own,
        "limit": min(asked.search_samples, asked.limit or asked.search_samples),
    }
    return [Task("extract-circuit", extract_circuit, values, tuple(f"circuit-{name}.json" for name in CIRCUITS))]


def _training(asked: Asked, selected: str) -> list[Task]:
    """Members apart, each on seeds of its own, and fused again; together where what they share must stay shared."""
    from hydractl.steps.finetune import finetune
    from hydractl.steps.fuse import fuse

    together = asked.members > 1 and (asked.trunks != "0" or asked.limits != Limits())
    several, recipe = asked.members > 1 and not together, asked.recipe
    stem = selected.removesuffix(".safetensors")
    tuned = [f"{stem}-member{n}.safetensors" for n in range(asked.members)] if several else ["fused.safetensors"]
    values = {
        "models": [Made(selected)],
        "members": "each" if several else None,
        "joint": together,
        "data": Given("TRAIN_DATA", asked.train_data or ""),
        "outlier_data": asked.outliers,
        "teacher": [Given(f"TEACHER_{number}", text) for number, text in enumerate(asked.teachers, 1)],
        "recipe": Given("RECIPE", recipe) if recipe and recipe.endswith(".toml") else recipe,
        "settings": list(asked.settings),
        "seed": asked.seed,
        "device": asked.device,
        "precision": None if asked.precision == "no" else asked.precision,
        "resume": True,
        "output": Made(f"{stem}-member{{member}}.safetensors" if several else tuned[0]),
    }
    tasks = [Task("finetune", finetune, values, tuple(tuned), (selected,))]
    if several:
        made = {"models": [Made(name) for name in tuned], "output": Made("fused.safetensors")}
        tasks.append(Task("fuse", fuse, made, ("fused.safetensors",), tuple(tuned)))
    return tasks


def _evaluation(asked: Asked, own: Mapping[str, Any]) -> Task:
    from hydractl.steps.evaluate import evaluate

    values = {
        "systems": {"network": Made(NETWORK), "hydra": Made(HYDRA)},
        "id_data": asked.inside(4),
        "ood_data": asked.outside(3),
        "bootstrap": 1000,
        "json": Made("report.json"),
        "report": Made("report"),
        **own,
    }
    return Task("evaluate", evaluate, values, ("report.json", "report"), (NETWORK, HYDRA))
