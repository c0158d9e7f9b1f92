"""The training loop: one network with one learning rate, validated, saved and gone on with."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.batching import Batches
from hydractl.errors import NotFiniteError, TrainingError
from hydractl.families.load import write_checkpoint
from hydractl.model.hydra import Hydra
from hydractl.training.accelerator import Workplace
from hydractl.training.batches import TrainingBatches, training_batches, validation_batches
from hydractl.training.conditions import Conditions, Training
from hydractl.training.losses import Embedder, Validation, validate, validate_pairs
from hydractl.training.network import build_network, network_checkpoint, trained_parameters
from hydractl.training.record import LOG_NAME, RunLog, load_state, plot_curve, read_log, save_state
from hydractl.training.step import Learner, build_optimizer, build_schedule, validation_interval

LOG_LINES = 2000  # a longer run logs every n-th step
LAST_GOOD = "last-good.safetensors"


@dataclass(frozen=True, eq=False)
class Trial:
    """A run with one of a recipe's learning rates.

    Attributes:
        checkpoint, training: what trains and by what, with labels and a classifier that fit.
        place: with the folder of this rate.
        conditions: all that the result of the whole run depends on, in plain JSON.
    """

    checkpoint: Checkpoint
    training: Training
    lr: float
    place: Workplace
    conditions: Conditions

    @property
    def steps(self) -> int:
        """The number of optimiser steps."""
        steps: int = self.conditions["steps"]
        return steps

    @property
    def validate_every(self) -> int:
        """Steps between two validations."""
        return validation_interval(self.training.recipe, self.training.data.size, self.steps)

    @property
    def save_every(self) -> int:
        """Steps between two saved states."""
        return self.place.execution.save_every or self.validate_every

    @property
    def leads(self) -> bool:
        """True for the one process that writes."""
        leads: bool = self.place.accelerator.is_main_process
        return leads

    def identity(self) -> dict[str, Any]:
        """Returns all that the result of this trial depends on, in plain JSON; a state of another is refused."""
        return {**self.conditions, "rate": self.lr}

    def saved(self) -> dict[str, Any] | None:
        """Returns the state of this trial that was saved last, if any."""
        return load_state(self.place.folder, self.identity())


class Progress(NamedTuple):
    """The progress of a run."""

    step: int
    steps: int
    loss: float
    lr: float
    samples_per_second: float
    seconds_left: float


@dataclass(frozen=True, eq=False)
class Tuned:
    """A network after training: the weights that validated best; without validation the last ones.

    Attributes:
        lr: the learning rate that was chosen.
        step: the step of the weights, out of `steps`.
        validation: of the weights; None without validation data, or if an earlier run had finished the file.
        log: loss and rate of each step, accuracy, NLL and ECE of each validation, in order.
    """

    checkpoint: Checkpoint
    lr: float
    step: int
    steps: int
    validation: Validation | None = None
    log: Sequence[Mapping[str, Any]] = ()
    name: str = ""
    output: Path | None = None

    def __str__(self) -> str:
        if self.validation is None:
            return f"{self.steps} steps at lr {self.lr:g}, no validation"
        found = self.validation
        return (
            f"step {self.step} of {self.steps} at lr {self.lr:g}: "
            f"validation accuracy {found.accuracy:.4f}, NLL {found.nll:.4f}, ECE {found.ece:.4f}"
        )

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON, without the weights."""
        validation = None if self.validation is None else self.validation.to_json()
        return {"name": self.name, "lr": self.lr, "step": self.step, "steps": self.steps, "validation": validation}


@dataclass
class Run:
    """The state of a network that trains.

    Attributes:
        reference: the accuracy that patience measures from.
    """

    learner: Learner
    step: int = 0
    best: Validation | None = None
    best_step: int = 0
    best_tensors: dict[str, Tensor] = field(default_factory=dict)
    reference: float = -math.inf
    without_improvement: int = 0
    stopped: bool = False


KEPT = ("step", "best_step", "best_tensors", "reference", "without_improvement", "stopped")


def fine_tune(trial: Trial, on_step: Callable[[Progress], None] | None = None) -> Tuned:
    """Trains a network; its log and its learning curve are in the trial's folder.

    Raises:
        TrainingError: the loss or a weight is not finite; the last good weights are then in the trial's folder.
        DataError: a sample cannot be read.
        OptionError: a state to resume belongs to another run.
    """
    training, place = trial.training, trial.place
    coming = training_batches(trial.checkpoint, training, place)
    place.accelerator.gradient_accumulation_steps = coming.passes
    try:
        groups = () if training.ensemble is None else training.ensemble.method.trains
        run = _start(build_network(trial.checkpoint, training.recipe, groups), trial)
        _train(run, trial, coming, on_step)
    except TrainingError:
        _draw(trial)
        raise
    finally:
        place.accelerator.free_memory()
    _draw(trial)
    network = run.learner.network
    _restore(network, run.best_tensors)
    step = run.best_step if run.best else run.step
    result = network_checkpoint(network, trial.checkpoint)
    return Tuned(result, trial.lr, step, trial.steps, validation=run.best, log=read_log(place.folder / LOG_NAME))


def _start(network: Hydra, trial: Trial) -> Run:
    recipe, accelerator = trial.training.recipe, trial.place.accelerator
    optimizer = build_optimizer(recipe, trial.lr, list(trained_parameters(network)))
    schedule = build_schedule(recipe, optimizer, trial.steps)
    wrapped = Embedder(network).train() if recipe.loss == "contrastive" else network.train()
    model, prepared = accelerator.prepare(wrapped, optimizer)
    learner = Learner(
        network=network,
        model=model,
        optimizer=prepared,
        schedule=schedule,
        recipe=recipe,
        noise=trial.training.seeds.noise,
        accelerator=accelerator,
        teachers=trial.training.teachers,
    )
    run = Run(learner)
    state = trial.saved() if trial.place.execution.resume else None
    if state is not None:
        _restore(network, state["model"])
        learner.optimizer.load_state_dict(state["optimizer"])
        learner.schedule.load_state_dict(state["schedule"])
        if accelerator.scaler is not None:
            accelerator.scaler.load_state_dict(state["scaler"])
        for name in KEPT:
            setattr(run, name, state[name])
        run.best = Validation(**state["best"]) if state["best"] else None
    return run


def _train(run: Run, trial: Trial, training: TrainingBatches, on_step: Callable[[Progress], None] | None) -> None:
    recipe, end = trial.training.recipe, trial.steps
    validation = validation_batches(trial.checkpoint, trial.training, trial.place)
    log = RunLog(trial.place.folder / LOG_NAME if trial.leads else None, run.step)
    coming = training.from_step(run.step, 0 if run.stopped else end)
    started, first = time.monotonic(), run.step
    while run.step < end and not run.stopped:
        rate = run.learner.schedule.get_last_lr()[0]
        loss = run.learner.take_step([next(coming) for _ in range(training.passes)], run.step)
        run.step += 1
        due = run.step % trial.validate_every == 0 or run.step == end
        if not math.isfinite(loss) or (due and not _is_finite(run.learner.network)):
            _give_up(run, trial, loss)
        pace = (run.step - first) / max(time.monotonic() - started, 1e-9)
        if run.step % max(1, end // LOG_LINES) == 0:
            log.write({"step": run.step, "loss": loss, "lr": rate, "samples_per_second": pace * recipe.batch})
        if on_step is not None:
            left = (end - run.step) / pace
            on_step(Progress(run.step, end, loss, rate, samples_per_second=pace * recipe.batch, seconds_left=left))
        if due and validation is not None:
            try:
                _validate(run, validation, log)
            except NotFiniteError:
                _give_up(run, trial, math.nan)
        if run.step % trial.save_every == 0 or run.step == end or run.stopped:
            _save(run, trial)


def _validate(run: Run, batches: Batches, log: RunLog) -> None:
    recipe = run.learner.recipe
    check = validate_pairs if recipe.loss == "contrastive" else validate
    result = check(run.learner.network, batches)
    log.write({"step": run.step, **result.to_json()})
    if result.better_than(run.best):
        run.best, run.best_step = result, run.step
        run.best_tensors = _trained_tensors(run.learner.network)
    if result.accuracy >= run.reference + recipe.improvement and result.accuracy > run.reference:
        run.reference, run.without_improvement = result.accuracy, 0
    else:
        run.without_improvement += 1
    run.stopped = 0 < recipe.patience <= run.without_improvement


def _save(run: Run, trial: Trial) -> None:
    accelerator = trial.place.accelerator
    accelerator.wait_for_everyone()
    if not trial.leads:
        return
    state = {
        "run": trial.identity(),
        "model": _trained_tensors(run.learner.network),
        "optimizer": run.learner.optimizer.state_dict(),
        "schedule": run.learner.schedule.state_dict(),
        "scaler": accelerator.scaler.state_dict() if accelerator.scaler is not None else None,
        "best": run.best.to_json() if run.best else None,
        **{name: getattr(run, name) for name in KEPT},
    }
    save_state(trial.place.folder, run.step, state, trial.place.execution.keep_states)


def _trained_tensors(network: Hydra) -> dict[str, Tensor]:
    return {name: p.detach().cpu().clone() for name, p in network.named_parameters() if p.requires_grad}


@torch.no_grad()
def _restore(network: Hydra, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        if name in tensors:
            parameter.copy_(tensors[name])


def _is_finite(network: Hydra) -> bool:
    return all(bool(p.isfinite().all()) for p in network.parameters() if p.requires_grad)


def _give_up(run: Run, trial: Trial, loss: float) -> None:
    """Keeps the last good weights and raises TrainingError."""
    found = f"the loss is {loss}" if not math.isfinite(loss) else "a weight is no longer finite"
    remedy = f"lower the rate (`settings` lr={trial.lr / 3:.0e}) or clip the gradient (`settings` clip=1)"
    state = trial.saved()
    good = run.best_tensors or (state["model"] if state else {})
    if not good:
        raise TrainingError(f"{found} at step {run.step}, before anything was saved: {remedy}")
    step = run.best_step if run.best_tensors else state["step"] if state else 0
    path = trial.place.folder / LAST_GOOD
    _restore(run.learner.network, good)
    if trial.leads:
        write_checkpoint(network_checkpoint(run.learner.network, trial.checkpoint), path, force=True)
    raise TrainingError(f"{found} at step {run.step}: the weights of step {step} are kept in {path}: {remedy}")


def _draw(trial: Trial) -> None:
    if trial.leads:
        folder = trial.place.folder
        plot_curve(read_log(folder / LOG_NAME), folder / "curve.png")
