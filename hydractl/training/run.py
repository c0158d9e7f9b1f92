"""One member from checkpoint to fine-tuned checkpoint: data made to fit, every rate of the recipe tried."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, cast

from accelerate import Accelerator

from hydractl.checkpoint.atomic import refuse_existing
from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.data.batches import Batches, make_batches
from hydractl.data.preprocessing import Preprocessor, preprocessor_from_json
from hydractl.data.sources import Samples
from hydractl.errors import OptionError, OutputError, TrainingError
from hydractl.surgery.provenance import with_provenance
from hydractl.training.augment import build_augmentation
from hydractl.training.baselines import Baseline, build_baseline, spread
from hydractl.training.data import Match, TrainingData, digest, fit_labels, remembered
from hydractl.training.log import plot_curve, read_log
from hydractl.training.loop import Outcome, Plan, Progress, fine_tune
from hydractl.training.network import build_network
from hydractl.training.optimizer import step_count, validation_interval
from hydractl.training.pairs import PairAugmentation, PairPreprocessor
from hydractl.training.recipe import Recipe, to_json
from hydractl.training.state import saved_states
from hydractl.training.stream import Division, Stream

VALIDATION_BATCH = 64


@dataclass(frozen=True)
class Machine:
    """How a run is carried out, none of which changes its result beyond rounding.

    `batch_size` samples at most go through the network at once on each device; None for as many as a step needs.
    """

    folder: Path
    batch_size: int | None = None
    workers: int = 0
    save_every: int | None = None
    keep: int = 2
    resume: bool = False


@dataclass(frozen=True)
class Result:
    """A fine-tuned checkpoint with its provenance, and how it came out."""

    outcome: Outcome
    lr: float


def fine_tune_checkpoint(
    checkpoint: Checkpoint,
    data: TrainingData,
    recipe: Recipe,
    seed: int,
    machine: Machine,
    accelerator: Accelerator,
    match: Match = "name",
    baseline: Baseline | None = None,
    on_step: Callable[[float, Progress], None] | None = None,
) -> Result:
    """The checkpoint fine-tuned by the recipe; of several rates the one with the best validation.

    Args:
        data: with labels by the model's names (or by index, as `match` says), or any if the recipe asks for a new
            classifier.
        baseline: makes an ensemble of the one network, instead of training it as it is.
        on_step: told the rate on trial and every step.

    Raises:
        OptionError: several rates but no validation data; the recipe does not fit the model.
        DataError: labels do not match, a sample cannot be read.
        TrainingError: the loss or a weight is not finite, with every rate.
    """
    fitted, data = fit_labels(checkpoint, data, recipe, match, seed)
    if baseline is not None:
        fitted = spread(fitted, baseline)
    if len(recipe.lr) > 1 and data.validation is None:
        raise OptionError(
            f"{len(recipe.lr)} learning rates to choose from, but no validation data: "
            "pass --val-data or --val-split, or one rate with --set lr=..."
        )
    results: list[Result] = []
    failed: TrainingError | None = None
    for lr in recipe.lr:
        folder = machine.folder / f"lr-{lr:g}" if len(recipe.lr) > 1 else machine.folder
        place = replace(machine, folder=folder)
        try:
            outcome = _one_rate(fitted, data, recipe, lr, seed, place, accelerator, baseline, on_step)
        except TrainingError as error:
            failed = error
            continue
        results.append(Result(outcome, lr))
    if not results:
        assert failed is not None
        raise failed
    best = results[0]
    for result in results[1:]:
        if result.outcome.validation and result.outcome.validation.better_than(best.outcome.validation):
            best = result
    told = with_provenance(
        best.outcome.checkpoint, "finetune", [checkpoint], _options(best, data, recipe, seed, baseline)
    )
    return replace(best, outcome=best.outcome._replace(checkpoint=told))


def run_folder(output: Path) -> Path:
    """Where the run that makes `output` keeps its log, its curve and its states."""
    return output.with_name(f"{output.name}.training")


def is_done(output: Path, resume: bool, force: bool) -> bool:
    """Whether there is nothing left to do, because a run that is to be resumed has already finished.

    Raises:
        OutputError: the output, or an unfinished run for it, exists, and neither `resume` nor `force` is set.
    """
    unfinished = _states(run_folder(output))
    if resume:
        return output.is_file() and not unfinished
    refuse_existing(output, force)
    if unfinished and not force:
        raise OutputError(f"{run_folder(output)}: an unfinished run lies there: go on with --resume, or pass --force")
    return False


def prepare_folder(output: Path, resume: bool) -> None:
    """Makes the run's folder, without the remains of an earlier run unless that is resumed."""
    folder = run_folder(output)
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)


def clear_states(output: Path) -> None:
    """Removes what a finished run kept to go on from; its log and its curve stay."""
    for path in _states(run_folder(output)):
        path.unlink()


def _states(folder: Path) -> list[Path]:
    return [path for place in (folder, *folder.glob("lr-*")) for path in saved_states(place)]


def _one_rate(
    checkpoint: Checkpoint,
    data: TrainingData,
    recipe: Recipe,
    lr: float,
    seed: int,
    machine: Machine,
    accelerator: Accelerator,
    baseline: Baseline | None,
    on_step: Callable[[float, Progress], None] | None,
) -> Outcome:
    machine.folder.mkdir(parents=True, exist_ok=True)
    steps = step_count(recipe, len(data.train))
    every = validation_interval(recipe, len(data.train), steps)
    run = {"model": identity(checkpoint), "train": digest(data.train), "method": asdict(baseline) if baseline else None}
    plan = Plan(
        recipe,
        lr,
        seed,
        steps,
        every,
        machine.save_every or every,
        machine.folder,
        machine.keep,
        machine.resume,
        run,
        bootstrap=baseline is not None and baseline.kind == "batch-ensemble",
    )
    preprocessor = _preprocessor(checkpoint, recipe)
    stream = _stream(checkpoint, data.train, preprocessor, recipe, seed, machine, accelerator)
    accelerator.gradient_accumulation_steps = stream.division.passes
    told = None if on_step is None else lambda progress: on_step(lr, progress)
    try:
        network = build_baseline(checkpoint, recipe, baseline, seed) if baseline else build_network(checkpoint, recipe)
        return fine_tune(
            network, checkpoint, stream, _validation(data, preprocessor, machine, accelerator), plan, accelerator, told
        )
    finally:
        accelerator.free_memory()
        if accelerator.is_main_process:
            plot_curve(read_log(machine.folder / "log.jsonl"), machine.folder / "curve.png")


def _stream(
    checkpoint: Checkpoint,
    train: Samples,
    preprocessor: Preprocessor,
    recipe: Recipe,
    seed: int,
    machine: Machine,
    accelerator: Accelerator,
) -> Stream:
    world_size = accelerator.num_processes
    if recipe.batch < world_size:
        raise OptionError(f"a step of {recipe.batch} samples cannot be divided among {world_size} processes")
    share = ceil(recipe.batch / world_size)
    passes = ceil(share / min(machine.batch_size or share, share))
    if recipe.loss == "contrastive" and recipe.batch % (world_size * passes):
        raise OptionError(
            f"{recipe.batch} pairs a step cannot be dealt out evenly to {world_size} processes, {passes} passes each: "
            "choose another --batch-size, or --set batch=..."
        )
    augmentation = build_augmentation(recipe, checkpoint.spec)
    pairs = recipe.loss == "contrastive" and augmentation is not None
    return Stream(
        train,
        preprocessor,
        PairAugmentation(augmentation) if pairs and augmentation else augmentation,
        seed,
        Division(recipe.batch, world_size, passes),
        accelerator.process_index,
        machine.workers,
    )


def _validation(
    data: TrainingData, preprocessor: Preprocessor, machine: Machine, accelerator: Accelerator
) -> Batches | None:
    if data.validation is None:
        return None
    return make_batches(
        data.validation,
        preprocessor,
        machine.batch_size or VALIDATION_BATCH,
        workers=machine.workers,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
    )


def _preprocessor(checkpoint: Checkpoint, recipe: Recipe) -> Preprocessor:
    preprocessor = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config)
    if recipe.loss == "contrastive":
        # All that batching asks of a preprocessor is what this one has.
        return cast("Preprocessor", PairPreprocessor(preprocessor))
    text = preprocessor.text
    if text is None or not recipe.max_length:
        return preprocessor
    return replace(
        preprocessor, text=replace(text, max_length=min(recipe.max_length, text.max_length or recipe.max_length))
    )


def _options(
    result: Result, data: TrainingData, recipe: Recipe, seed: int, baseline: Baseline | None
) -> dict[str, Any]:
    # The validation data chose the weights: an evaluation refuses them as it does the data of a search.
    chosen_by = {} if data.validation is None else {"validation data": remembered(data.validation)}
    return {
        "recipe": {**to_json(recipe), "lr": result.lr},
        "seed": seed,
        "method": asdict(baseline) if baseline else None,
        "best_step": result.outcome.step,
        "steps": result.outcome.steps,
        "training_data": remembered(data.train),
        "search_data": chosen_by or None,
    }
