"""The whole pipeline: from a network and data to the Hydra worth keeping, and what it gains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import exists  # also of names that no path can have
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.bounds import real
from hydractl.errors import OptionError
from hydractl.selection.objectives import Objective
from hydractl.steps.calibrate import calibrate
from hydractl.steps.evaluate import evaluate
from hydractl.steps.extract_circuit import extract_circuit
from hydractl.steps.finetune import finetune
from hydractl.steps.fuse import fuse
from hydractl.steps.inputs import DEFAULT_BATCH_SIZE, BatchSize, Device, Limit, Seed
from hydractl.steps.options import Option, step
from hydractl.steps.pipeline import Given, Made, Task
from hydractl.steps.result import Result
from hydractl.steps.select import select
from hydractl.steps.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint

KIND = "build"
HYDRA, NETWORK = "hydra.safetensors", "network.safetensors"
CIRCUITS = ("acc", "ood", "avg")
SOURCE = "[NAME=]SOURCE[:SPLIT]"


@dataclass(frozen=True, eq=False, repr=False)
class Built(Result):
    """A Hydra and what it gains over the network it came from.

    Attributes:
        tasks: the commands that made it, in order.
        folder: where everything lies.
        report: the evaluation, plain JSON; None where nothing was run.
        verdict: what is gained and lost, in a sentence.
        advice: what to try where nothing is gained.
    """

    tasks: Sequence[Task]
    folder: Path
    report: Mapping[str, Any] | None = None
    verdict: str = ""
    advice: Sequence[str] = field(default_factory=tuple)

    @property
    def checkpoint(self) -> Checkpoint:
        """The Hydra."""
        from hydractl.families.open import read_checkpoint

        return read_checkpoint(self.folder / HYDRA)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "hydractl-build",
            "version": 1,
            "steps": [task.line() for task in self.tasks],
            "hydra": HYDRA,
            "verdict": self.verdict or None,
            "advice": list(self.advice),
        }

    def lines(self) -> Iterator[str]:
        if self.report is None:
            yield from (task.line() for task in self.tasks)
            return
        yield self.verdict
        yield str(self.folder / HYDRA)
        yield from self.advice

    def facts(self) -> Mapping[str, object]:
        return {"folder": self.folder, "steps": len(self.tasks), "verdict": self.verdict or "not run"}


@step
def build(
    model: Annotated[
        str,
        Option(
            "The network: a folder of transformers, timm or OpenCLIP, a file of ours, or a hub id.",
            "Model",
            "MODEL",
            positional=True,
        ),
    ],
    *,
    members: Annotated[int, Option("How many members.", minimum=1, maximum=100)] = 3,
    objective: Annotated[
        Objective | None,
        Option("What members are selected for; avg, or nll where there are no OOD data, unless given."),
    ] = None,
    budgets: Annotated[
        str, Option("How many heads members may lack, as numbers or shares of all.", metavar="8%,17%,33%")
    ] = "8%,17%,33%",
    draws: Annotated[int, Option("Random draws for each circuit and budget.", minimum=0, maximum=100)] = 4,
    trunks: Annotated[str, Option("Depths of common trunks to try; 0 is none.", metavar="0,2,4")] = "0",
    max_accuracy_drop: Annotated[
        float,
        Option("How much accuracy members may lose together where they are selected, 0 to 1.", minimum=0, maximum=1),
    ] = 0.005,
    budget_macs: Annotated[
        str | None, Option("Multiply-adds that the Hydra may have against the network's.", metavar="1.3x")
    ] = None,
    recipe: Annotated[
        str | None, Option("How members are fine-tuned on `train_data`.", metavar="NAME|FILE.toml")
    ] = None,
    settings: Annotated[
        Sequence[str], Option("Change a setting of the recipe; repeat it.", metavar="KEY=VALUE", flags=("--set",))
    ] = (),
    seed: Seed = 0,
    id_data: Annotated[str, Option("Labelled in-distribution data, to choose by and to measure on.", "Data", SOURCE)],
    ood_data: Annotated[
        Sequence[str], Option("Out-of-distribution data, likewise; repeat it for several sets.", "Data", SOURCE)
    ] = (),
    train_data: Annotated[str | None, Option("Labelled data to fine-tune members on.", "Data", SOURCE)] = None,
    eval_data: Annotated[
        str | None, Option("Labelled data to measure on, in place of a part of `id_data`.", "Data", SOURCE)
    ] = None,
    eval_ood_data: Annotated[
        Sequence[str],
        Option(
            "OOD data to measure on, in place of a part of `ood_data`; repeat it for several sets.",
            "Data",
            "[near/|far/][NAME=]SOURCE[:SPLIT]",
        ),
    ] = (),
    limit: Limit = None,
    device: Device = "auto",
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    output: Annotated[
        Path, Option("Folder for everything; a build begun there goes on.", "Output", flags=("--output", "-o"))
    ],
    dry_run: Annotated[bool, Option("Print the commands and do nothing.", "Output")] = False,
    watch: Watcher = LOG,
) -> Built:
    """Build the Hydra worth keeping, and say what it gains.

    Divides the data into parts by the content of its samples, one to search circuits on, one to select members on, one
    to fit a temperature on, one to measure on. Searches three circuits, tries members of several sizes and
    draws, keeps those that do best together, fine-tunes them where there are training data, fuses them, fits a
    temperature, and evaluates the Hydra beside the network on what nothing has seen.

    Example: hydractl build vit --id-data cifar10:test --ood-data textures=dtd:train -o built

    Writes hydra.safetensors, report/ and a Makefile with the exact commands, which makes the same bytes. Interrupted,
    the same command goes on where it stopped. Prints the verdict: what is gained, what is lost, at what cost.

    >>> planned = hydractl.build("vit", id_data="data/pets", ood_data=["data/noise"], output="built", dry_run=True)
    >>> [task.command for task in planned.tasks]
    ['extract-circuit', 'select', 'calibrate', 'calibrate', 'evaluate']

    Raises:
        CheckpointError: the network cannot be read.
        DataError: data cannot be read, or a part of it is empty.
        OptionError: options that do not go together.
        OutputError: the folder is not of a build, or of one with other options; or the disk refuses it.
    """
    asked = _Asked(
        Given("MODEL", model), id_data, list(ood_data), train_data, eval_data, list(eval_ood_data), members,
        objective or ("avg" if ood_data else "nll"), budgets, draws, trunks, max_accuracy_drop,
        None if budget_macs is None else _ratio(budget_macs), recipe, list(settings), seed, limit, str(device),
        batch_size,
    )  # fmt: skip
    tasks = plan(asked)
    if dry_run:
        return Built(tasks, Path(output))
    if not ood_data:
        watch.note(
            "note: without OOD data heads are drawn at random and members chosen by NLL: what detects OOD samples is "
            "left to chance; give `ood_data` to choose by it"
        )
    return _built(tasks, Path(output), watch)


@dataclass(frozen=True)
class _Asked:
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
    trunks: str
    max_accuracy_drop: float
    max_cost: float | None
    recipe: str | None
    settings: Sequence[str]
    seed: int
    limit: int | None
    device: str
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
    def _seeded(self) -> str:
        return f"@{self.seed}" if self.seed else ""


def _ood(variable: str, text: str, suffix: str = "") -> Given:
    """An OOD set, its group and name apart from its source."""
    name, equals, source = text.rpartition("=") if not exists(text) else ("", "", text)
    return Given(variable, source, f"{name}{equals}", suffix)


def plan(asked: _Asked) -> list[Task]:
    """The commands of a build, in order."""
    own = {"device": asked.device, "batch_size": asked.batch_size, "limit": asked.limit}
    tasks = _search(asked, own) if asked.ood_data else []
    circuits = [Made(f"circuit-{name}.json") for name in CIRCUITS] if asked.ood_data else []
    trunks = asked.trunks if circuits else ""
    tasks.append(
        Task(
            "select",
            select,
            {
                "model": asked.model,
                "circuit": circuits,
                "budgets": asked.budgets,
                "pools": "25%,50%" if circuits and asked.draws else "",
                "draws": asked.draws or None,
                "random": max(asked.draws, 1) if not circuits else 0,
                "objective": asked.objective,
                "members": str(asked.members),
                "max_accuracy_drop": asked.max_accuracy_drop,
                "max_cost": asked.max_cost,
                "share_below": "" if trunks == "0" else trunks,
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


def _search(asked: _Asked, own: Mapping[str, Any]) -> list[Task]:
    values = {
        "model": asked.model,
        "id_data": asked.inside(1),
        "ood_data": asked.outside(1),
        "budget": "50%",
        "objective": ",".join(CIRCUITS),
        "output": Made("circuit-{objective}.json"),
        "resume": True,
        **own,
    }
    return [Task("extract-circuit", extract_circuit, values, tuple(f"circuit-{name}.json" for name in CIRCUITS))]


def _training(asked: _Asked, selected: str) -> list[Task]:
    """Members apart, each on seeds of its own, and fused again."""
    several = asked.members > 1
    stem = selected.removesuffix(".safetensors")
    tuned = [f"{stem}-member{n}.safetensors" for n in range(asked.members)] if several else ["tuned.safetensors"]
    values = {
        "models": [Made(selected)],
        "members": "each" if several else None,
        "data": Given("TRAIN_DATA", asked.train_data or ""),
        "recipe": asked.recipe,
        "settings": list(asked.settings),
        "seed": asked.seed,
        "device": asked.device,
        "resume": True,
        "output": Made(f"{stem}-member{{member}}.safetensors" if several else tuned[0]),
    }
    tasks = [Task("finetune", finetune, values, tuple(tuned), (selected,))]
    if several:
        made = {"models": [Made(name) for name in tuned], "output": Made("fused.safetensors")}
        tasks.append(Task("fuse", fuse, made, ("fused.safetensors",), tuple(tuned)))
    return tasks


def _evaluation(asked: _Asked, own: Mapping[str, Any]) -> Task:
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


def _ratio(text: str) -> float:
    value = real(text.removesuffix("x"), 0.01, 1000)
    if value is None:
        raise OptionError(f"`budget_macs` {text}: expected a multiple of the network's, as in 1.3x")
    return value


def _built(tasks: Sequence[Task], folder: Path, watch: Watcher) -> Built:
    """Runs the commands and reads what they came to."""
    import json

    from hydractl.checkpoint.atomic import write_bytes
    from hydractl.checkpoint.locks import claim
    from hydractl.report.artifact import read_report
    from hydractl.report.verdict import verdicts
    from hydractl.steps.pipeline import makefile, run_tasks

    _begin(tasks, folder)
    with claim(folder):
        write_bytes(folder / "Makefile", makefile(tasks, folder, "report.json").encode(), force=True)
        for _ in run_tasks(tasks, folder, watch):
            pass
        report = read_report(str(folder / "report.json"))
        verdict = verdicts(report["models"])["hydra"]
        built = Built(tasks, folder, report, verdict.sentence(), () if verdict.gains else _advice(tasks))
        write_bytes(folder / "build.json", f"{json.dumps(built.to_json(), indent=2)}\n".encode(), force=True)
    return built


def _begin(tasks: Sequence[Task], folder: Path) -> None:
    """The folder of a build: a new one, or one that was begun with the same commands.

    Raises:
        OutputError: it is not of a build, or of one with other options.
    """
    import json

    from hydractl.checkpoint.atomic import write_bytes
    from hydractl.checkpoint.folders import is_ours, write_folder
    from hydractl.steps.pipeline import refuse_other

    lines = [task.line() for task in tasks]
    if is_ours(folder, KIND):
        refuse_other(folder, json.loads((folder / "steps.json").read_bytes()), lines)
        return
    with write_folder(folder, KIND) as new:
        write_bytes(new / "steps.json", f"{json.dumps(lines, indent=2)}\n".encode())


def _advice(tasks: Sequence[Task]) -> tuple[str, ...]:
    """What to say where a Hydra gains nothing."""
    trained = any(task.command == "finetune" for task in tasks)
    tries = ["fewer heads (a smaller `budgets`)", "more OOD data to choose by"]
    tries += [] if trained else ["fine-tuning (`train_data`)"]
    return (f"Keep your network: nothing here is better than it beyond chance. Try {', '.join(tries)}.",)
