"""`hydractl finetune`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
import typer.core

from hydractl.cli import console
from hydractl.cli.device import choose_device
from hydractl.cli.options import (
    Device,
    Force,
    ImageColumn,
    Json,
    LabelColumn,
    Limit,
    MatchLabels,
    Quiet,
    Seed,
    TextColumn,
    Token,
)
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.training.baselines import Baseline
    from hydractl.training.loop import Progress
    from hydractl.training.recipe import Recipe
    from hydractl.training.run import Result

MEMBER = "{member}"
EACH = "each"  # what --members stands for without a number
DEFAULT_RANK = 4


class MembersCommand(typer.core.TyperCommand):
    """A command whose --members may stand alone, or before a number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for at, argument in enumerate(args):
            if argument == "--members" and not (
                at + 1 < len(args) and (args[at + 1].isdecimal() or args[at + 1] == EACH)
            ):
                args = [*args[: at + 1], EACH, *args[at + 1 :]]
                break
        return super().parse_args(ctx, args)


def finetune(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="One network, or members to train each.")],
    *,
    data: Annotated[str, typer.Option(metavar="SOURCE[:SPLIT]", help="Labelled training data.")],
    output: Annotated[
        str,
        typer.Option("--output", "-o", help="File to write; for several members a folder, or a name with {member}."),
    ],
    val_data: Annotated[str | None, typer.Option(metavar="SOURCE[:SPLIT]", help="Labelled validation data.")] = None,
    val_split: Annotated[
        int | None, typer.Option(min=1, help="Hold so many training samples out for validation, always the same.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="NAME|FILE.toml", help="What is computed; see hydractl recipes list.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe; repeat it.")
    ] = None,
    lr_grid: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Learning rates to try; validation chooses.")
    ] = None,
    epochs: Annotated[float | None, typer.Option(min=0, help="Passes over the training data.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimiser steps.")] = None,
    train_only: Annotated[
        str | None, typer.Option(metavar="PART,...", help="Train these parts only: attention, mlp, text.norm ...")
    ] = None,
    freeze_below: Annotated[
        int | None, typer.Option(metavar="L", help="Freeze the layers below this; negative counts from the top.")
    ] = None,
    new_classifier: Annotated[
        Literal["no", "zeros", "normal"] | None,
        typer.Option(help="Replace the classifier by an untrained one over the data's labels."),
    ] = None,
    members: Annotated[
        str | None,
        typer.Option(
            metavar="[N]", help="Train each member of a Hydra on its own; with --method, how many members to make."
        ),
    ] = None,
    joint: Annotated[
        bool, typer.Option("--joint", help="Train a Hydra as it is fused, on the mean of its members' losses.")
    ] = False,
    method: Annotated[
        Literal["lora-ensemble", "batch-ensemble"] | None,
        typer.Option(help="Make an ensemble of one dense network, as a baseline, and fold it into one file."),
    ] = None,
    rank: Annotated[int | None, typer.Option(min=1, help="Rank of each member's deltas in a LoRA ensemble.")] = None,
    alpha: Annotated[float | None, typer.Option(help="LoRA's deltas count alpha / rank, once unless given.")] = None,
    seed: Seed = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted run stopped.")] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Samples per forward pass and device; a step adds up as many as it needs.")
    ] = None,
    precision: Annotated[
        Literal["no", "bf16", "fp16"], typer.Option(help="Mixed precision of products; weights stay float32.")
    ] = "no",
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode and augment images.")] = 0,
    save_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between saved states; at each validation unless given.")
    ] = None,
    keep: Annotated[int, typer.Option(min=1, help="Saved states to keep.")] = 2,
    device: Device = "auto",
    limit: Limit = None,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    json: Json = False,
    quiet: Quiet = False,
    force: Force = False,
    token: Token = None,
) -> None:
    """Fine-tune a model, or members after pruning.

    Example: hydractl finetune m1 m2 m3 --data sst2:train --val-data sst2:validation --recipe sst2 -o tuned/

    Writes one safetensors file per member and prints its path. Members train independently, with seeds S, S+1 ...
    Log, learning curve and what --resume needs lie beside it in FILE.training. Starts under torchrun as well.
    """
    from hydractl.data.columns import Columns
    from hydractl.families.open import read_checkpoint, write_checkpoint
    from hydractl.training.data import open_training_data
    from hydractl.training.process import start_accelerator
    from hydractl.training.run import Machine, clear_states, fine_tune_checkpoint, is_done, prepare_folder, run_folder

    settings = _settings(set_, lr_grid, epochs, steps, train_only, freeze_below, new_classifier)
    chosen = _recipe(recipe, settings)
    fresh = chosen.new_classifier != "no"
    baseline = _baseline(method, members, rank, alpha, joint)
    names, checkpoints = _networks(
        [(model, read_checkpoint(model, fresh)) for model in models], members, joint, baseline
    )
    paths = output_paths(output, names)
    unfinished = [number for number, path in enumerate(paths) if not is_done(path, resume, force)]
    columns = Columns(image_column, text_column, label_column)
    kind = "pair" if chosen.loss == "contrastive" else _modality(checkpoints)
    training_data = open_training_data(kind, data, val_data, val_split, columns, limit)
    accelerator = start_accelerator(choose_device(device), precision)
    is_main = accelerator.is_main_process
    accelerator.wait_for_everyone()
    for number in unfinished:
        path = paths[number]
        machine = Machine(run_folder(path), batch_size, workers, save_every, keep, resume)
        if is_main:
            prepare_folder(path, resume)
        accelerator.wait_for_everyone()
        with _progress(path.name, quiet or not is_main) as on_step:
            result = fine_tune_checkpoint(
                checkpoints[number],
                training_data,
                chosen,
                seed + number,
                machine,
                accelerator,
                match_labels,
                baseline,
                on_step,
            )
        if is_main:
            write_checkpoint(result.outcome.checkpoint, path, force=force or resume)
            clear_states(path)
            console.note(_summary(path, result), quiet)
    if is_main:
        _print_outputs(paths, json)


def _settings(
    pairs: list[str] | None,
    lr_grid: str | None,
    epochs: float | None,
    steps: int | None,
    train_only: str | None,
    freeze_below: int | None,
    new_classifier: str | None,
) -> dict[str, Any]:
    """What the command line changes in a recipe."""
    from hydractl.training.recipe import parse_settings

    options = {
        "lr": lr_grid,
        "epochs": epochs,
        "steps": steps,
        "train_only": train_only,
        "freeze_below": freeze_below,
        "new_classifier": new_classifier,
    }
    return parse_settings(pairs or []) | {name: value for name, value in options.items() if value is not None}


def _recipe(name: str | None, settings: dict[str, Any]) -> Recipe:
    from hydractl.training.published import find_recipe
    from hydractl.training.recipe import Recipe, changed

    return changed(find_recipe(name) if name else Recipe(), settings, "the command line")


def _baseline(
    method: Literal["lora-ensemble", "batch-ensemble"] | None,
    members: str | None,
    rank: int | None,
    alpha: float | None,
    joint: bool,
) -> Baseline | None:
    from hydractl.training.baselines import Baseline

    if method != "lora-ensemble" and (rank is not None or alpha is not None):
        raise OptionError("--rank and --alpha are for --method lora-ensemble: leave them out")
    if joint and (method or members):
        raise OptionError("--joint trains the members of a Hydra together: leave --method and --members out")
    if method is None:
        return None
    if members is None or not members.isdecimal():
        raise OptionError(f"--method {method}: say how many members to make, e.g. --members 3")
    return Baseline(method, int(members), rank or DEFAULT_RANK, alpha)


def _networks(
    opened: list[tuple[str, Checkpoint]], members: str | None, joint: bool, baseline: Baseline | None
) -> tuple[list[str], list[Checkpoint]]:
    """What is trained on its own, and what each is called: models as they are, or the members of a Hydra."""
    from hydractl.surgery.members import split_members

    if members is None or baseline is not None:
        for name, checkpoint in opened:
            if checkpoint.members > 1 and not joint and baseline is None:
                raise OptionError(
                    f"{name}: has {checkpoint.members} members: train each with --members, or all with --joint"
                )
            if checkpoint.members == 1 and joint:
                raise OptionError(f"--joint: {name} has one member: leave --joint out")
        return [name for name, _ in opened], [checkpoint for _, checkpoint in opened]
    if members != EACH:
        raise OptionError(
            f"--members {members}: a number is for --method; --members alone trains each member of a Hydra"
        )
    parts = [
        (f"{name.removesuffix('.safetensors')}-member{number}", part)
        for name, checkpoint in opened
        for number, part in enumerate(split_members(checkpoint))
    ]
    return [name for name, _ in parts], [part for _, part in parts]


def output_paths(output: str, models: list[str]) -> list[Path]:
    """A file for each model: `output` itself for one, else by name in that folder, or numbered where {member} stands.

    Raises:
        OptionError: several models and one file to write, or two models of one name.
    """
    path = Path(output)
    if MEMBER in path.name:
        return [path.with_name(path.name.replace(MEMBER, str(number))) for number in range(len(models))]
    if path.is_dir() or output.endswith("/"):
        path.mkdir(exist_ok=True)
        names = [f"{Path(model).resolve().name.removesuffix('.safetensors')}.safetensors" for model in models]
        if len(set(names)) < len(names):
            raise OptionError(f"--output {output}: two models have the same name: use a name with {MEMBER}")
        return [path / name for name in names]
    if len(models) > 1:
        raise OptionError(f"--output {output}: {len(models)} members need a folder (NAME/) or a name with {MEMBER}")
    return [path]


def _modality(checkpoints: list[Checkpoint]) -> Literal["image", "text"]:
    tasks = {checkpoint.spec.task for checkpoint in checkpoints}
    if len(tasks) > 1:
        raise OptionError(f"members of different kinds: {', '.join(sorted(tasks))}: train them one by one")
    return "text" if tasks == {"text-classification"} else "image"


def _summary(path: Path, result: Result) -> str:
    outcome = result.outcome
    if outcome.validation is None:
        return f"{path}: {outcome.steps} steps at lr {result.lr:g}, no validation"
    found = outcome.validation
    return (
        f"{path}: step {outcome.step} of {outcome.steps} at lr {result.lr:g}: "
        f"validation accuracy {found.accuracy:.4f}, NLL {found.nll:.4f}, ECE {found.ece:.4f}"
    )


def _print_outputs(paths: list[Path], json: bool) -> None:
    if json:
        console.print_json({"outputs": [str(path) for path in paths]})
    else:
        print("\n".join(str(path) for path in paths))


@contextmanager
def _progress(name: str, quiet: bool) -> Iterator[Callable[[float, Progress], None] | None]:
    """Told of every step, draws loss, rate, throughput and time left on stderr if a person is watching."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name)

        def on_step(lr: float, now: Progress) -> None:
            text = f"{name} (lr {lr:g}): loss {now.loss:.4f}, lr {now.lr:.2e}, {now.samples_per_second:.0f} samples/s"
            bar.update(task, total=now.steps, completed=now.step, description=text)

        yield on_step
