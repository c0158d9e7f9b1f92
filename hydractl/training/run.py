"""One member from checkpoint to fine-tuned checkpoint: data made to fit, every rate of the recipe tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from accelerate import Accelerator

from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.errors import OptionError, TrainingError
from hydractl.surgery.provenance import SEEN, with_provenance
from hydractl.training.batches import Machine, training_batches, training_preprocessor, validation_batches
from hydractl.training.data import Match, TrainingData, digest, fit_labels, remembered
from hydractl.training.ensembles import Ensemble
from hydractl.training.factors import spread
from hydractl.training.log import LOG_NAME, plot_curve, read_log
from hydractl.training.loop import fine_tune
from hydractl.training.network import build_network
from hydractl.training.optimizer import step_count, validation_interval
from hydractl.training.recipe import Recipe, to_json
from hydractl.training.trial import Outcome, Progress, Trial

OnStep = Callable[[float, Progress], None]


def fine_tune_checkpoint(
    checkpoint: Checkpoint,
    data: TrainingData,
    recipe: Recipe,
    seed: int,
    machine: Machine,
    accelerator: Accelerator,
    match: Match = "name",
    ensemble: Ensemble | None = None,
    on_step: OnStep | None = None,
) -> Outcome:
    """The checkpoint fine-tuned by the recipe, with its provenance; of several rates the one that validates best.

    Args:
        data: with labels by the model's names (or by index, as `match` says), or any if the recipe asks for a new
            classifier.
        ensemble: what to make of the one network, instead of training it as it is.
        on_step: told the rate on trial and every step.

    Raises:
        OptionError: several rates but no validation data; the recipe does not fit the model.
        DataError: labels do not match, a sample cannot be read.
        TrainingError: the loss or a weight is not finite, with every rate.
    """
    fitted, data = fit_labels(checkpoint, data, recipe, match, seed)
    if ensemble is not None:
        fitted = spread(fitted, ensemble)
    if len(recipe.lr) > 1 and data.validation is None:
        raise OptionError(
            f"{len(recipe.lr)} learning rates to choose from, but no validation data: "
            "pass `val_data` or `val_split`, or one rate (`settings` lr=...)"
        )
    outcomes: list[Outcome] = []
    failed: TrainingError | None = None
    for lr in recipe.lr:
        trial = _plan(fitted, data, recipe, lr, seed, machine, ensemble)
        try:
            outcomes.append(_train(fitted, data, trial, machine, accelerator, ensemble, on_step))
        except TrainingError as error:
            failed = error
    if failed is not None and not outcomes:
        raise failed
    best = outcomes[0]
    for outcome in outcomes[1:]:
        if outcome.validation and outcome.validation.better_than(best.validation):
            best = outcome
    told = with_provenance(best.checkpoint, "finetune", [checkpoint], _options(best, data, recipe, seed, ensemble))
    return best._replace(checkpoint=told)


def _plan(
    checkpoint: Checkpoint,
    data: TrainingData,
    recipe: Recipe,
    lr: float,
    seed: int,
    machine: Machine,
    ensemble: Ensemble | None,
) -> Trial:
    """What the run with one of the recipe's rates does; each rate has a folder of its own where there are several."""
    steps = step_count(recipe, data.size)
    every = validation_interval(recipe, data.size, steps)
    folder = machine.folder / f"lr-{lr:g}" if len(recipe.lr) > 1 else machine.folder
    return Trial(
        recipe=recipe,
        lr=lr,
        seed=seed,
        steps=steps,
        validate_every=every,
        save_every=machine.save_every or every,
        folder=folder,
        keep=machine.keep,
        resume=machine.resume,
        run={
            "model": identity(checkpoint),
            "train": digest(data.train),
            "method": asdict(ensemble) if ensemble else None,
        },
        weighs_samples=ensemble is not None and ensemble.method.weighs_samples,
    )


def _train(
    checkpoint: Checkpoint,
    data: TrainingData,
    trial: Trial,
    machine: Machine,
    accelerator: Accelerator,
    ensemble: Ensemble | None,
    on_step: OnStep | None,
) -> Outcome:
    """Carries one trial out."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    recipe, seed = trial.recipe, trial.seed
    batches = training_batches(data.train, checkpoint, recipe, seed, machine, accelerator)
    validation = None
    if data.validation is not None:
        preprocessor = training_preprocessor(checkpoint, recipe)
        validation = validation_batches(data.validation, preprocessor, machine, accelerator)
    accelerator.gradient_accumulation_steps = batches.division.passes
    told = None if on_step is None else lambda progress: on_step(trial.lr, progress)
    try:
        if ensemble is None:
            network = build_network(checkpoint, recipe)
        else:
            network = ensemble.method.build(checkpoint, recipe, ensemble, seed)
        return fine_tune(network, checkpoint, batches, validation, trial, accelerator, told)
    finally:
        accelerator.free_memory()
        if accelerator.is_main_process:
            plot_curve(read_log(trial.folder / LOG_NAME), trial.folder / "curve.png")


def _options(best: Outcome, data: TrainingData, recipe: Recipe, seed: int, ensemble: Ensemble | None) -> dict[str, Any]:
    # The validation data chose the weights: an evaluation refuses them as it does the data of a search.
    chosen_by = {} if data.validation is None else {"validation data": remembered(data.validation)}
    return {
        "recipe": {**to_json(recipe), "lr": best.lr},
        "seed": seed,
        "method": asdict(ensemble) if ensemble else None,
        "best_step": best.step,
        "steps": best.steps,
        "training_data": remembered(data.train),
        SEEN: chosen_by or None,
    }
