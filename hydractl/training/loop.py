"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.batches import Batches
from hydractl.errors import NotFiniteError, TrainingError
from hydractl.families.open import write_checkpoint
from hydractl.model.hydra import Hydra
from hydractl.training.contrastive import Embedder
from hydractl.training.log import LOG_NAME, Log, read_log
from hydractl.training.network import network_checkpoint, trained_parameters
from hydractl.training.optimizer import build_optimizer, build_schedule
from hydractl.training.order import TrainingBatches
from hydractl.training.state import load_state, save_state
from hydractl.training.step import Learner, take_step
from hydractl.training.teachers import Teachers
from hydractl.training.trial import Outcome, Progress, Trial
from hydractl.training.validate import Validation, validate, validate_pairs

LOG_LINES = 2000  # a longer run logs every n-th step
LAST_GOOD = "last-good.safetensors"


@dataclass
class Run:
    """What changes while a network trains."""

    learner: Learner
    step: int = 0
    best: Validation | None = None
    best_step: int = 0
    best_tensors: dict[str, Tensor] = field(default_factory=dict)
    reference: float = -math.inf  # the accuracy that patience measures from
    without_improvement: int = 0
    stopped: bool = False


def fine_tune(
    network: Hydra,
    checkpoint: Checkpoint,
    training: TrainingBatches,
    validation: Batches | None,
    trial: Trial,
    accelerator: Accelerator,
    on_step: Callable[[Progress], None] | None = None,
    teachers: Teachers | None = None,
) -> Outcome:
    """Trains a network in place.

    Args:
        network: see `build_network`; only what is unfrozen in it trains.
        checkpoint: what it was built from.
        training: the training batches of this process.
        validation: labelled batches of this process, or None: then the last weights are the result.
        on_step: told of every step.
        teachers: whose probabilities are learnt as well as labels, or in their place.

    Raises:
        TrainingError: the loss or a weight is not finite; the last good weights are then in the run's folder.
        DataError: a sample cannot be read.
        OptionError: a state to resume belongs to another run.
    """
    run = _start(network, checkpoint, trial, accelerator, teachers)
    log = Log(trial.folder / LOG_NAME if accelerator.is_main_process else None, run.step)
    coming = training.from_step(run.step, 0 if run.stopped else trial.steps)
    started, first = time.monotonic(), run.step
    while run.step < trial.steps and not run.stopped:
        rate = run.learner.schedule.get_last_lr()[0]
        batches = [next(coming) for _ in range(training.passes)]
        loss = take_step(run.learner, batches, run.step, trial, accelerator)
        run.step += 1
        due = run.step % trial.validate_every == 0 or run.step == trial.steps
        if not math.isfinite(loss) or (due and not _is_finite(network)):
            _give_up(run, checkpoint, trial, accelerator, loss)
        pace = (run.step - first) / max(time.monotonic() - started, 1e-9)
        if run.step % max(1, trial.steps // LOG_LINES) == 0:
            log.write({"step": run.step, "loss": loss, "lr": rate, "samples_per_second": pace * trial.recipe.batch})
        if on_step is not None:
            left = (trial.steps - run.step) / pace
            on_step(Progress(run.step, trial.steps, loss, rate, pace * trial.recipe.batch, left))
        if due and validation is not None:
            try:
                _validate(run, validation, trial, log)
            except NotFiniteError:
                _give_up(run, checkpoint, trial, accelerator, math.nan)
        if run.step % trial.save_every == 0 or run.step == trial.steps or run.stopped:
            _save(run, trial, accelerator)
    _restore(network, run.best_tensors)
    result = network_checkpoint(network, checkpoint)
    step = run.best_step if run.best else run.step
    return Outcome(result, trial.lr, step, trial.steps, run.best, read_log(trial.folder / LOG_NAME))


def _start(
    network: Hydra, checkpoint: Checkpoint, trial: Trial, accelerator: Accelerator, teachers: Teachers | None
) -> Run:
    parameters = list(trained_parameters(network))
    optimizer = build_optimizer(trial.recipe, trial.lr, parameters)
    schedule = build_schedule(trial.recipe, optimizer, trial.steps)
    contrastive = trial.recipe.loss == "contrastive"
    model, wrapped = accelerator.prepare(Embedder(network).train() if contrastive else network.train(), optimizer)
    run = Run(Learner(network, model, wrapped, schedule, teachers))
    state = load_state(trial.folder, trial.identity()) if trial.resume else None
    if state is not None:
        _restore(network, state["model"])
        run.learner.optimizer.load_state_dict(state["optimizer"])
        run.learner.schedule.load_state_dict(state["schedule"])
        if accelerator.scaler is not None:
            accelerator.scaler.load_state_dict(state["scaler"])
        run.step, run.best_step, run.best_tensors = state["step"], state["best_step"], state["best_tensors"]
        run.best = Validation(**state["best"]) if state["best"] else None
        run.reference, run.without_improvement = state["reference"], state["without_improvement"]
        run.stopped = state["stopped"]
    return run


def _validate(run: Run, batches: Batches, trial: Trial, log: Log) -> None:
    check = validate_pairs if trial.recipe.loss == "contrastive" else validate
    result = check(run.learner.network, batches)
    log.write({"step": run.step, **result.to_json()})
    if result.better_than(run.best):
        run.best, run.best_step = result, run.step
        run.best_tensors = _trained_tensors(run.learner.network)
    if result.accuracy >= run.reference + trial.recipe.improvement and result.accuracy > run.reference:
        run.reference, run.without_improvement = result.accuracy, 0
    else:
        run.without_improvement += 1
    run.stopped = 0 < trial.recipe.patience <= run.without_improvement


def _save(run: Run, trial: Trial, accelerator: Accelerator) -> None:
    accelerator.wait_for_everyone()
    if not accelerator.is_main_process:
        return
    state = {
        "run": trial.identity(),
        "step": run.step,
        "model": _trained_tensors(run.learner.network),
        "optimizer": run.learner.optimizer.state_dict(),
        "schedule": run.learner.schedule.state_dict(),
        "scaler": accelerator.scaler.state_dict() if accelerator.scaler is not None else None,
        "best": run.best.to_json() if run.best else None,
        "best_step": run.best_step,
        "best_tensors": run.best_tensors,
        "reference": run.reference,
        "without_improvement": run.without_improvement,
        "stopped": run.stopped,
    }
    save_state(trial.folder, run.step, state, trial.keep)


def _trained_tensors(network: Hydra) -> dict[str, Tensor]:
    return {name: p.detach().cpu().clone() for name, p in network.named_parameters() if p.requires_grad}


@torch.no_grad()
def _restore(network: Hydra, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        if name in tensors:
            parameter.copy_(tensors[name])


def _is_finite(network: Hydra) -> bool:
    return all(bool(p.isfinite().all()) for p in network.parameters() if p.requires_grad)


def _give_up(run: Run, checkpoint: Checkpoint, trial: Trial, accelerator: Accelerator, loss: float) -> None:
    """Keeps the last good weights and raises TrainingError."""
    what = f"the loss is {loss}" if not math.isfinite(loss) else "a weight is no longer finite"
    remedy = f"lower the rate (`settings` lr={trial.lr / 3:.0e}) or clip the gradient (`settings` clip=1)"
    state = load_state(trial.folder, trial.identity())
    good = run.best_tensors or (state["model"] if state else {})
    if not good:
        raise TrainingError(f"{what} at step {run.step}, before anything was saved: {remedy}")
    path, step = trial.folder / LAST_GOOD, run.best_step if run.best_tensors else state["step"] if state else 0
    _restore(run.learner.network, good)
    if accelerator.is_main_process:
        write_checkpoint(network_checkpoint(run.learner.network, checkpoint), path, force=True)
    raise TrainingError(f"{what} at step {run.step}: the weights of step {step} are kept in {path}: {remedy}")
