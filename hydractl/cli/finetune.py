"""`hydractl finetune`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer.core

from hydractl.cli import console
from hydractl.cli import training_options as own
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
    Workers,
)
from hydractl.cli.training_runs import EACH, chosen_baseline, chosen_recipe, networks, output_paths, sample_kind

if TYPE_CHECKING:
    from hydractl.training.run import Result
    from hydractl.training.trial import Progress


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
    models: own.Models,
    *,
    data: own.TrainingSource,
    output: own.Outputs,
    val_data: own.ValidationSource = None,
    val_split: own.ValidationSplit = None,
    streaming: own.Streaming = False,
    recipe: own.RecipeName = None,
    set_: own.Settings = None,
    lr_grid: own.LrGrid = None,
    epochs: own.Epochs = None,
    steps: own.Steps = None,
    train_only: own.TrainOnly = None,
    freeze_below: own.FreezeBelow = None,
    new_classifier: own.NewClassifier = None,
    members: own.Members = None,
    joint: own.Joint = False,
    method: own.BaselineMethod = None,
    rank: own.Rank = None,
    alpha: own.Alpha = None,
    seed: Seed = 0,
    resume: own.Resume = False,
    batch_size: own.PassSize = None,
    precision: own.MixedPrecision = "no",
    workers: Workers = 0,
    save_every: own.SaveEvery = None,
    keep: own.Keep = 2,
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
    from hydractl.training.batches import Machine
    from hydractl.training.data import open_training_data
    from hydractl.training.folders import clear_states, is_done, prepare_folder, run_folder
    from hydractl.training.process import start_accelerator
    from hydractl.training.run import fine_tune_checkpoint

    settings = {"lr": lr_grid, "epochs": epochs, "steps": steps, "train_only": train_only,
                "freeze_below": freeze_below, "new_classifier": new_classifier}  # fmt: skip
    chosen = chosen_recipe(recipe, set_ or [], settings)
    baseline = chosen_baseline(method, members, rank, alpha, joint)
    fresh = chosen.new_classifier != "no"
    opened = [(model, read_checkpoint(model, fresh)) for model in models]
    names, checkpoints = networks(opened, members, joint, baseline)
    paths = output_paths(output, names)
    unfinished = [number for number, path in enumerate(paths) if not is_done(path, resume, force)]
    columns = Columns(image_column, text_column, label_column)
    kind = sample_kind(checkpoints, chosen)
    training_data = open_training_data(kind, data, val_data, val_split, columns, limit, streaming)
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
