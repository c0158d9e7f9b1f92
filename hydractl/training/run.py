"""One member from checkpoint to fine-tuned checkpoint: data made to fit, every rate of the recipe tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accelerate import Accelerator

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.folders import make_folder
from hydractl.data.batches import Batches
from hydractl.errors import OptionError, TrainingError
from hydractl.model.hydra import Hydra
from hydractl.surgery.members import fold
from hydractl.surgery.provenance import SEEN, with_provenance
from hydractl.training.adapters import spread
from hydractl.training.batches import Machine, training_batches, training_preprocessor, validation_batches
from hydractl.training.conditions import Conditions, as_provenance, training_conditions
from hydractl.training.data import Match, Streamed, TrainingData, fit_labels, remembered
from hydractl.training.ensembles import Ensemble
from hydractl.training.folders import refuse_other_run
from hydractl.training.log import LOG_NAME, plot_curve, read_log
from hydractl.training.loop import fine_tune
from hydractl.training.network import build_network
from hydractl.training.optimizer import validation_interval
from hydractl.training.order import Seeds
from hydractl.training.recipe import Recipe
from hydractl.training.teachers import Teachers, require_fit
from hydractl.training.trial import Outcome, Progress, Trial

OnStep = Callable[[float, Progress], None]


def fine_tune_checkpoint(
    checkpoint: Checkpoint,
    data: TrainingData,
    recipe: Recipe,
    seeds: int | Seeds,
    machine: Machine,
    accelerator: Accelerator,
    match: Match = "name",
    ensemble: Ensemble | None = None,
    on_step: OnStep | None = None,
    teachers: Teachers | None = None,
) -> Outcome:
    """The checkpoint fine-tuned by the recipe, with its provenance; of several rates the one that validates best.

    Args:
        data: with labels by the model's names (or by index, as `match` says), or any if the recipe asks for a new
            classifier.
        seeds: one for everything, or each.
        ensemble: what to make of the one network, instead of training it as it is.
        on_step: told the rate on trial and every step.
        teachers: whose probabilities it learns; where they have all the weight, labels are not read.

    Raises:
        OptionError: several rates but no validation data; the recipe or a teacher does not fit the model.
        DataError: labels do not match, a sample cannot be read.
        TrainingError: the loss or a weight is not finite, with every rate.
    """
    precision = accelerator.mixed_precision
    seeds = Seeds.of(seeds) if isinstance(seeds, int) else seeds
    taught = () if teachers is None else teachers.checkpoints
    conditions = training_conditions(checkpoint, data, recipe, seeds, match, ensemble, precision, taught)
    if machine.resume:
        refuse_other_run(machine.folder, conditions)
    fitted, data = fit_labels(checkpoint, data, recipe, match, seeds.run, teachers is not None)
    if teachers is not None:
        require_fit(teachers.checkpoints, fitted)
    if ensemble is not None:
        fitted = spread(fitted, ensemble, recipe, seeds.run)
    if len(recipe.lr) > 1 and data.validation is None:
        raise OptionError(
            f"{len(recipe.lr)} learning rates to choose from, but no validation data: "
            "pass `val_data` or `val_split`, or one rate (`settings` lr=...)"
        )
    work = _Work(fitted, data, recipe, seeds, conditions, machine, accelerator, ensemble, teachers)
    best: Outcome | None = None
    failed: TrainingError | None = None
    for lr in recipe.lr:
        try:
            outcome = work.run(work.trial(lr), on_step)
        except TrainingError as error:
            failed = error
            continue
        if best is None or (outcome.validation and outcome.validation.better_than(best.validation)):
            best = outcome
    if best is None:
        assert failed is not None
        raise failed
    result = fold(best.checkpoint) if ensemble is not None and ensemble.fold else best.checkpoint
    told = with_provenance(result, "finetune", [checkpoint, *taught], work.provenance(best))
    return best._replace(checkpoint=told)


@dataclass(frozen=True, eq=False)
class _Work:
    """A network and data that fit each other, and what else the trials of several rates have in common."""

    checkpoint: Checkpoint
    data: TrainingData
    recipe: Recipe
    seeds: Seeds
    conditions: Conditions
    machine: Machine
    accelerator: Accelerator
    ensemble: Ensemble | None
    teachers: Teachers | None

    def trial(self, lr: float) -> Trial:
        """The trial of one rate; where there are several, each has a folder of its own."""
        steps = self.conditions["steps"]
        every = validation_interval(self.recipe, self.data.size, steps)
        folder = self.machine.folder / f"lr-{lr}" if len(self.recipe.lr) > 1 else self.machine.folder
        return Trial(
            recipe=self.recipe,
            lr=lr,
            seeds=self.seeds,
            steps=steps,
            validate_every=every,
            save_every=self.machine.save_every or every,
            folder=folder,
            keep=self.machine.keep,
            resume=self.machine.resume,
            conditions=self.conditions,
        )

    def run(self, trial: Trial, on_step: OnStep | None) -> Outcome:
        """What a trial ends with; its log and its curve are in its folder."""
        make_folder(trial.folder, parents=True)
        batches = training_batches(self.data, self.checkpoint, self.recipe, self.seeds, self.machine, self.accelerator)
        self.accelerator.gradient_accumulation_steps = batches.passes
        told = None if on_step is None else lambda progress: on_step(trial.lr, progress)
        try:
            outcome = fine_tune(
                self._network(),
                self.checkpoint,
                batches,
                self._validation(),
                trial,
                self.accelerator,
                told,
                self.teachers,
            )
        except TrainingError:
            self._draw(trial)
            raise
        finally:
            self.accelerator.free_memory()
        self._draw(trial)
        return outcome

    def _draw(self, trial: Trial) -> None:
        if self.accelerator.is_main_process:
            plot_curve(read_log(trial.folder / LOG_NAME), trial.folder / "curve.png")

    def provenance(self, best: Outcome) -> dict[str, Any]:
        """What the result was determined by."""
        train = self.data.train
        options = {**as_provenance(self.conditions, self.recipe, best.lr), "best_step": best.step}
        # An evaluation refuses what the weights were fitted to, and what chose them, as it does the data of a search.
        beside = {"validation data": self.data.validation, "outliers": self.data.outliers}
        seen = {name: remembered(samples) for name, samples in beside.items() if samples is not None}
        if isinstance(train, Streamed):
            return {**options, "training_data": remembered(train), SEEN: seen or None}
        return {**options, SEEN: {"training data": remembered(train), **seen}}

    def _network(self) -> Hydra:
        trains = () if self.ensemble is None else self.ensemble.method.trains
        return build_network(self.checkpoint, self.recipe, trains)

    def _validation(self) -> Batches | None:
        if self.data.validation is None:
            return None
        preprocessor = training_preprocessor(self.checkpoint, self.recipe)
        return validation_batches(self.data.validation, preprocessor, self.machine, self.accelerator)
