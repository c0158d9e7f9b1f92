"""The whole pipeline: from a network and data to the Hydra worth keeping, and what it gains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hydractl import bounds
from hydractl.errors import OptionError, OutputError
from hydractl.optional import require
from hydractl.selection.objectives import Objective
from hydractl.steps.built import Built
from hydractl.steps.compute import choose_device, dtype_name
from hydractl.steps.estimate import estimates
from hydractl.steps.inputs import DEFAULT_BATCH_SIZE, BatchSize, Device, Dtype, Limit, Precision, Seed
from hydractl.steps.limits import Limits
from hydractl.steps.options import Option, step
from hydractl.steps.pipeline import Given, Task
from hydractl.steps.plan import HYDRA, NETWORK, Asked, plan
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    import torch

    from hydractl.steps.latency import LatencyLimit

    ModeName = str
else:
    from hydractl.circuit.modes import MODES

    ModeName = Literal[tuple(mode.name for mode in MODES)]

KIND = "build"  # of the folder, see `hydractl.checkpoint.folders`
STEPS = "steps.json"
SOURCE = "[NAME=]SOURCE[:SPLIT]"
SEARCHED = 500  # samples of each set
DRAWS = 4


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
        Objective, Option("What members are selected for: NLL, accuracy, AUROC of MSP, or the mean of these two.")
    ] = "nll",
    budgets: Annotated[
        str, Option("How many heads members may lack, as numbers or shares of all.", metavar="8%,17%,33%")
    ] = "8%,17%,33%",
    draws: Annotated[
        int | None,
        Option("Draws from the first heads of each circuit for each budget; 4 unless given.", minimum=0, maximum=100),
    ] = None,
    random: Annotated[int, Option("Draws from all heads for each budget.", minimum=0, maximum=1000)] = 12,
    trunks: Annotated[
        str | None,
        Option(
            "Depths of common trunks to try; 0, which is none, unless given, and more where a budget limits the cost.",
            metavar="0,2,4",
        ),
    ] = None,
    max_accuracy_drop: Annotated[
        float,
        Option("How much accuracy members may lose together where they are selected, 0 to 1.", minimum=0, maximum=1),
    ] = 0.005,
    budget_macs: Annotated[
        str | None, Option("Multiply-adds that the Hydra may have against the network's.", metavar="1.3x")
    ] = None,
    budget_params: Annotated[
        str | None, Option("Parameters that it may have against the network's.", metavar="1.2x")
    ] = None,
    budget_latency: Annotated[
        str | None,
        Option("Time that it may take against the network's, as measured on this machine.", metavar="1.5x"),
    ] = None,
    teacher: Annotated[
        Sequence[str],
        Option(
            "Network whose probabilities members learn in place of labels; repeat it for a Deep Ensemble.",
            metavar="MODEL",
        ),
    ] = (),
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
    search: Annotated[
        ModeName, Option("How circuits are searched, as in extract-circuit; all but exact are faster.", "Model")
    ] = "exact",
    search_samples: Annotated[
        int | None,
        Option(
            "Samples of each set to search circuits on, at most, since a search takes most of the time; 500 unless "
            "given.",
            "Data",
            minimum=1,
            maximum=bounds.SAMPLES,
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = None,
    precision: Precision = "no",
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    output: Annotated[
        str | Path,
        Option("Where everything goes; a build begun there goes on.", "Output", "FOLDER", flags=("--output", "-o")),
    ],
    dry_run: Annotated[
        bool, Option("Print the commands with the time and disk that each will take, and do nothing.", "Output")
    ] = False,
    watch: Watcher = LOG,
) -> Built:
    """Build the Hydra worth keeping, and say what it gains.

    Divides the data into parts by the content of its samples, one to search circuits on, one to select members on, one
    to fit a temperature on, one to measure on. Searches three circuits where there are OOD data, tries members of
    several sizes and draws, keeps those that do best together, fine-tunes them where there are training data, unsure of
    the OOD data, fuses them, fits a temperature, and evaluates the Hydra beside the network on what nothing has seen.

    Example: hydractl build vit --id-data cifar10:test --ood-data textures=dtd:train -o built

    Writes hydra.safetensors, report/ and a Makefile with the exact commands, which makes the same bytes. Interrupted,
    the same command goes on where it stopped. Prints the verdict: what is gained, what is lost, at what cost.

    >>> planned = hydractl.build("vit", id_data="data/pets", ood_data=["data/noise"], output="built", dry_run=True)
    >>> [task.command for task in planned.tasks]
    ['extract-circuit', 'select', 'calibrate', 'calibrate', 'evaluate']

    Raises:
        CheckpointError: the network cannot be read.
        DataError: data cannot be read, or a part of it is empty.
        OptionError: options that do not go together, or a recipe that does not say how long to train.
        OutputError: the folder is not of a build, or of one with other options; or the disk refuses it.
    """
    from hydractl.selection.greedy import require_measurable
    from hydractl.steps.latency import latency_limit

    of_circuits = {"search": None if search == "exact" else search, "search_samples": search_samples, "draws": draws}
    for name, value in of_circuits.items():
        if value is not None and not ood_data:
            raise OptionError(f"`{name}` {value}: circuits need `ood_data`: give it, or leave `{name}` out")
    require_measurable(objective, bool(ood_data))
    if not (ood_data or random):
        raise OptionError("`random` 0: without `ood_data` heads are drawn at random: give one or the other")
    if teacher:
        _check_teachers(model, teacher, train_data)
    folder, place = Path(output), choose_device(device)
    latency = None if budget_latency is None else latency_limit(model, budget_latency, members, place, folder, watch)
    limits = Limits.of(budget_macs, budget_params, latency)
    asked = Asked(
        Given("MODEL", model), id_data, list(ood_data), train_data, eval_data, list(eval_ood_data), members,
        objective, budgets, DRAWS if draws is None else draws, random, trunks or limits.trunks(model),
        max_accuracy_drop, limits, list(teacher), recipe, list(settings), seed, limit, search,
        search_samples or SEARCHED, str(device), dtype_name(dtype), precision, batch_size,
    )  # fmt: skip
    tasks = plan(asked)
    if dry_run:
        return Built(tasks, folder, estimates=estimates(tasks, asked, watch))
    require("matplotlib", *(["accelerate"] if train_data else []))  # which the last steps take, hours from now
    if not ood_data:
        watch.note(
            "note: without OOD data heads are drawn at random, as no circuit is searched, and members learn to be "
            "unsure of nothing; give `ood_data` for these"
        )
    return _built(tasks, folder, latency, place, watch)


def _check_teachers(model: str, teachers: Sequence[str], train_data: str | None) -> None:
    """Refuses now what training would refuse hours later."""
    from hydractl.steps.inputs import as_checkpoint
    from hydractl.training.teachers import require_fit

    if train_data is None:
        raise OptionError("`teacher` has no effect without `train_data`: give both or neither")
    require_fit([as_checkpoint(teacher) for teacher in teachers], as_checkpoint(model))


def _built(
    tasks: Sequence[Task], folder: Path, latency: LatencyLimit | None, device: torch.device, watch: Watcher
) -> Built:
    """Runs the commands and reads what they came to."""
    import json

    from hydractl.checkpoint.atomic import write_bytes
    from hydractl.checkpoint.locks import claim
    from hydractl.report.artifact import read_report
    from hydractl.report.verdict import verdicts
    from hydractl.steps.pipeline import makefile, run_tasks

    _begin(tasks, folder, latency)
    with claim(folder):
        write_bytes(folder / "Makefile", makefile(tasks, folder, "report.json").encode(), force=True)
        for _ in run_tasks(tasks, folder, watch):
            pass
        report = read_report(str(folder / "report.json"))
        verdict = verdicts(report["models"])["hydra"]
        advice = () if verdict.gains else _advice(tasks)
        timed = "" if latency is None else latency.kept(folder / NETWORK, folder / HYDRA, device)
        built = Built(tasks, folder, report, verdict.sentence(), advice, timed)
        write_bytes(folder / "build.json", f"{json.dumps(built.to_json(), indent=2)}\n".encode(), force=True)
    return built


def _begin(tasks: Sequence[Task], folder: Path, latency: LatencyLimit | None) -> None:
    """The folder of a build: a new one, or one that was begun with the same commands.

    Raises:
        OutputError: it is not of a build, or of one with other options.
    """
    import json

    from hydractl.checkpoint.atomic import write_bytes
    from hydractl.checkpoint.folders import is_ours, write_folder
    from hydractl.schema import Origin, read_json
    from hydractl.steps.pipeline import refuse_other

    lines = [task.line() for task in tasks]
    if is_ours(folder, KIND):
        origin = Origin(str(folder / STEPS), OutputError, "name another folder")
        refuse_other(folder, read_json(folder / STEPS, origin).read(tuple[str, ...]), lines)
        return
    with write_folder(folder, KIND) as new:
        write_bytes(new / STEPS, f"{json.dumps(lines, indent=2)}\n".encode())
        if latency is not None:
            latency.write(new)


def _advice(tasks: Sequence[Task]) -> tuple[str, ...]:
    """What to say where a Hydra gains nothing."""
    trained = any(task.command == "finetune" for task in tasks)
    # In words, not by names of options, which a shell and Python spell differently.
    tries = ["smaller budgets of heads", "more data to choose by"]
    tries += [] if trained else ["training data to fine-tune members on"]
    return (f"Keep your network: nothing here is better than it beyond chance. Try {', '.join(tries)}.",)
