"""The commands of a build, in order, each with the part of the data that it may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import exists  # also of names that no path can have
from typing import TYPE_CHECKING, Any

from hydractl.errors import OptionError
from hydractl.steps.compute import dtype_name
from hydractl.steps.limits import Limits
from hydractl.steps.pipeline import Given, Made, Task

if TYPE_CHECKING:
    from hydractl.steps.build import Build

HYDRA, NETWORK = "hydra.safetensors", "network.safetensors"
CIRCUITS = ("acc", "ood", "avg")
SEARCH_SAMPLES = 500  # of each set, by default
DRAWS = 4


@dataclass(frozen=True)
class Parts:
    """Divides the data of a build into disjoint parts, by the content of its samples.

    The parts are numbered: 1 to search circuits, 2 to select members, 3 to calibrate, 4 to evaluate.
    """

    build: Build

    def id_data(self, part: int) -> Given:
        """Returns a part of the ID data."""
        count = 3 if self.build.eval_data else 4
        if part > count:
            return Given("EVAL_DATA", self.build.eval_data or "")
        return Given("ID_DATA", self.build.id_data, suffix=f"%{part}/{count}{self._seed}")

    def ood_data(self, part: int) -> list[Given]:
        """Returns a part of every OOD set; nothing is calibrated on them, so 3 is the part to evaluate on."""
        count = 2 if self.build.eval_ood_data else 3
        if part > count:
            return [_ood_set(f"EVAL_OOD_{i}", text) for i, text in enumerate(self.build.eval_ood_data, 1)]
        suffix = f"%{part}/{count}{self._seed}"
        return [_ood_set(f"OOD_{i}", text, suffix) for i, text in enumerate(self.build.ood_data, 1)]

    @property
    def _seed(self) -> str:
        return f"@{self.build.seed}" if self.build.seed else ""


def _ood_set(variable: str, text: str, suffix: str = "") -> Given:
    """Returns an OOD set with its group and name apart from its source."""
    name, equals, source = text.rpartition("=") if not exists(text) else ("", "", text)
    return Given(variable, source, f"{name}{equals}", suffix)


def plan(build: Build, limits: Limits, trunks: str) -> list[Task]:
    """Returns the commands of a build.

    Args:
        trunks: the trunk depths to try.

    Raises:
        OptionError: the recipe does not exist, or does not say how long to train.
    """
    tasks = [_search(build)] if build.ood_data else []
    tasks.append(_selection(build, limits, trunks))
    last = "selected.safetensors"
    if build.train_data is not None:
        # Members train together where they must keep sharing what a trunk or a budget makes them share.
        tasks += _training(build, last, build.members > 1 and (trunks != "0" or limits != Limits()))
        last = "fused.safetensors"
    tasks += [_calibration(build, Made(last), HYDRA, (last,)), _calibration(build, _network(build), NETWORK)]
    return [*tasks, _evaluation(build)]


def _network(build: Build) -> Given:
    return Given("MODEL", build.model)


def _shared(build: Build) -> dict[str, Any]:
    compute = build.compute
    return {
        "device": str(compute.device),
        "dtype": dtype_name(compute.dtype),
        "batch_size": compute.batch_size,
        "limit": build.limit,
    }


def _search(build: Build) -> Task:
    from hydractl.steps.extract_circuit import extract_circuit

    most = build.search_samples or SEARCH_SAMPLES
    values = _shared(build) | {
        "model": _network(build),
        "id_data": Parts(build).id_data(1),
        "ood_data": Parts(build).ood_data(1),
        "budget": "50%",
        "objective": ",".join(CIRCUITS),
        "search": build.search,
        "limit": min(most, build.limit or most),
        "output": Made("circuit-{objective}.json"),
        "resume": True,
    }
    return Task("extract-circuit", extract_circuit, values, tuple(f"circuit-{name}.json" for name in CIRCUITS))


def _selection(build: Build, limits: Limits, trunks: str) -> Task:
    from hydractl.steps.select import select

    circuits = [Made(f"circuit-{name}.json") for name in CIRCUITS] if build.ood_data else []
    draws = DRAWS if build.draws is None else build.draws
    values = _shared(build) | {
        "model": _network(build),
        "circuit": circuits,
        "budgets": build.budgets,
        **({"pools": "25%,50%", "draws": draws} if circuits and draws else {}),
        "random": build.random,
        "objective": build.objective,
        "members": str(build.members),
        "max_accuracy_drop": build.max_accuracy_drop,
        "budget_macs": limits.budget_macs,
        "budget_params": limits.budget_params,
        "trunks": "" if trunks == "0" else trunks,
        "seed": build.seed,
        "id_data": Parts(build).id_data(2),
        "ood_data": Parts(build).ood_data(2) or None,
        "output": Made("selection.json"),
        "hydra": Made("selected.safetensors"),
        "resume": True,
    }
    made = ("selection.json", "selected.safetensors")
    return Task("select", select, values, made, tuple(circuit.name for circuit in circuits))


def _training(build: Build, selected: str, together: bool) -> list[Task]:
    """Returns the commands that train members: each with its own seed and then fused, or all together."""
    from hydractl.steps.finetune import finetune
    from hydractl.steps.fuse import fuse

    apart, recipe = build.members > 1 and not together, build.recipe
    stem = selected.removesuffix(".safetensors")
    trained = [f"{stem}-member{n}.safetensors" for n in range(build.members)] if apart else ["fused.safetensors"]
    values = {
        "models": [Made(selected)],
        "apart": apart,
        "joint": together,
        "train_data": Given("TRAIN_DATA", build.train_data or ""),
        "outlier_data": _outliers(build),
        "teacher": [Given(f"TEACHER_{number}", text) for number, text in enumerate(build.teacher, 1)],
        "recipe": Given("RECIPE", recipe) if recipe and recipe.endswith(".toml") else recipe,
        "settings": list(build.settings),
        "seed": build.seed,
        "device": str(build.compute.device),
        "precision": None if build.precision == "no" else build.precision,
        "resume": True,
        "output": Made(f"{stem}-member{{member}}.safetensors" if apart else trained[0]),
    }
    tasks = [Task("finetune", finetune, values, tuple(trained), (selected,))]
    if apart:
        made = {"models": [Made(name) for name in trained], "output": Made("fused.safetensors")}
        tasks.append(Task("fuse", fuse, made, ("fused.safetensors",), tuple(trained)))
    return tasks


def _outliers(build: Build) -> Sequence[Given]:
    """Returns the OOD samples of search and selection if the recipe gives them a weight."""
    from hydractl.training.published import choose_recipe

    recipe = choose_recipe(build.recipe, build.settings, {})
    if not recipe.steps and not recipe.epochs:
        raise OptionError("`train_data`: the recipe does not say how long to train: add `settings` epochs=1")
    return [*Parts(build).ood_data(1), *Parts(build).ood_data(2)] if recipe.outlier_weight else []


def _calibration(build: Build, model: Made | Given, output: str, needs: tuple[str, ...] = ()) -> Task:
    from hydractl.steps.calibrate import calibrate

    values = _shared(build) | {"model": model, "id_data": Parts(build).id_data(3), "output": Made(output)}
    return Task("calibrate", calibrate, values, (output,), needs)


def _evaluation(build: Build) -> Task:
    from hydractl.steps.evaluate import evaluate

    values = _shared(build) | {
        "systems": {"network": Made(NETWORK), "hydra": Made(HYDRA)},
        "id_data": Parts(build).id_data(4),
        "ood_data": Parts(build).ood_data(3),
        "bootstrap": 1000,
        "json": Made("report.json"),
        "report": Made("report"),
    }
    return Task("evaluate", evaluate, values, ("report.json", "report"), (NETWORK, HYDRA))
