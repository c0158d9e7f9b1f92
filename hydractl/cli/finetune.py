"""`hydractl finetune`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

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
)
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.training.loop import Progress
    from hydractl.training.recipe import Recipe
    from hydractl.training.run import Result

MEMBER = "{member}"


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
    paths = output_paths(output, models)
    unfinished = [number for number, path in enumerate(paths) if not is_done(path, resume, force)]
    checkpoints = [read_checkpoint(model) for model in models]
    columns = Columns(image_column, text_column, label_column)
    training_data = open_training_data(_modality(checkpoints), data, val_data, val_split, columns, limit)
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
                on_step=on_step,
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
