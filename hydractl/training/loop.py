"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.batches import Batch, Batches
from hydractl.errors import NotFiniteError, TrainingError
from hydractl.families.open import write_checkpoint
from hydractl.model.hydra import Hydra
from hydractl.training.contrastive import Embedder, contrastive_backward
from hydractl.training.log import Log
from hydractl.training.network import network_checkpoint, trained_parameters
from hydractl.training.optimizer import build_optimizer, build_schedule
from hydractl.training.recipe import Recipe, to_json
from hydractl.training.state import load_state, save_state
from hydractl.training.stream import DROPOUT, MEMBERS, Stream, derived_seed
from hydractl.training.validate import Validation, validate, validate_pairs

LOG_LINES = 2000  # a longer run logs every n-th step
LAST_GOOD = "last-good.safetensors"


@dataclass(frozen=True)
class Plan:
    """What a run does, and where it keeps itself.

    `run` is what its result depends on beside recipe, rate and seed, in plain JSON; a state of another is not resumed.
    """

    recipe: Recipe
    lr: float
    seed: int
    steps: int
    validate_every: int
    save_every: int
    folder: Path
    keep: int = 2
    resume: bool = False
    run: Mapping[str, Any] = field(default_factory=dict)
    bootstrap: bool = False  # whether members weight samples each in their own way


class Progress(NamedTuple):
    """How far a run has come."""

    step: int
    steps: int
    loss: float
    lr: float
    samples_per_second: float
    seconds_left: float


class Outcome(NamedTuple):
    """What a run ends with: the best weights where there was validation, else the last ones."""

    checkpoint: Checkpoint
    step: int
    steps: int
    validation: Validation | None


@dataclass
class Run:
    """What changes while a network trains."""

    model: Any  # the network as accelerate wraps it
    network: Hydra
    optimizer: Any
    schedule: Any
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
    stream: Stream,
    validation: Batches | None,
    plan: Plan,
    accelerator: Accelerator,
    on_step: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Trains a network in place.

    Args:
        network: see `build_network`; only what is unfrozen in it trains.
        checkpoint: what it was built from.
        stream: the training samples of this process.
        validation: labelled batches of this process, or None: then the last weights are the result.
        on_step: told of every step.

    Raises:
        TrainingError: the loss or a weight is not finite; the last good weights are then in the run's folder.
        DataError: a sample cannot be read.
        OptionError: a state to resume belongs to another run.
    """
    run = _start(network, checkpoint, plan, accelerator)
    log = Log(plan.folder / "log.jsonl" if accelerator.is_main_process else None, run.step)
    batches = stream.from_step(run.step, 0 if run.stopped else plan.steps)
    started, first = time.monotonic(), run.step
    while run.step < plan.steps and not run.stopped:
        rate = run.schedule.get_last_lr()[0]
        loss = _take_step(run, batches, stream, plan, accelerator)
        run.step += 1
        due = run.step % plan.validate_every == 0 or run.step == plan.steps
        if not math.isfinite(loss) or (due and not _is_finite(network)):
            _give_up(run, checkpoint, plan, accelerator, loss)
        pace = (run.step - first) / max(time.monotonic() - started, 1e-9)
        if run.step % max(1, plan.steps // LOG_LINES) == 0:
            log.write({"step": run.step, "loss": loss, "lr": rate, "samples_per_second": pace * plan.recipe.batch})
        if on_step is not None:
            left = (plan.steps - run.step) / pace
            on_step(Progress(run.step, plan.steps, loss, rate, pace * plan.recipe.batch, left))
        if due and validation is not None:
            try:
                _validate(run, validation, plan, log)
            except NotFiniteError:
                _give_up(run, checkpoint, plan, accelerator, math.nan)
        if run.step % plan.save_every == 0 or run.step == plan.steps or run.stopped:
            _save(run, plan, accelerator)
    _restore(network, run.best_tensors)
    result = network_checkpoint(network, checkpoint)
    return Outcome(result, run.best_step if run.best else run.step, plan.steps, run.best)


def _start(network: Hydra, checkpoint: Checkpoint, plan: Plan, accelerator: Accelerator) -> Run:
    parameters = list(trained_parameters(network))
    optimizer = build_optimizer(plan.recipe, plan.lr, parameters)
    schedule = build_schedule(plan.recipe, optimizer, plan.steps)
    contrastive = plan.recipe.loss == "contrastive"
    model, wrapped = accelerator.prepare(Embedder(network).train() if contrastive else network.train(), optimizer)
    run = Run(model, network, wrapped, schedule)
    state = load_state(plan.folder, _identity(plan)) if plan.resume else None
    if state is not None:
        _restore(network, state["model"])
        run.optimizer.load_state_dict(state["optimizer"])
        run.schedule.load_state_dict(state["schedule"])
        if accelerator.scaler is not None:
            accelerator.scaler.load_state_dict(state["scaler"])
        run.step, run.best_step, run.best_tensors = state["step"], state["best_step"], state["best_tensors"]
        run.best = Validation(**state["best"]) if state["best"] else None
        run.reference, run.without_improvement = state["reference"], state["without_improvement"]
        run.stopped = state["stopped"]
    return run


def _take_step(run: Run, batches: Iterator[Batch], stream: Stream, plan: Plan, accelerator: Accelerator) -> float:
    """One optimiser step over `recipe.batch` samples; its mean loss."""
    run.network.train()
    made = [next(batches) for _ in range(stream.division.passes)]

    def seed(forward: int) -> None:
        # Dropout follows from seed, step and place too: nothing about it has to be remembered for a resume.
        torch.manual_seed(derived_seed(plan.seed, DROPOUT, run.step, forward, stream.rank))

    if plan.recipe.loss == "contrastive":
        loss = contrastive_backward(run.model, run.network, made, accelerator, seed)
    else:
        loss = _backward(run, made, stream, plan, accelerator, seed)
    if plan.recipe.clip:
        accelerator.clip_grad_norm_(run.network.parameters(), plan.recipe.clip)
    run.optimizer.step()
    run.optimizer.zero_grad()
    if not run.optimizer.step_was_skipped:
        run.schedule.step()
    return loss.item()


def _backward(
    run: Run, made: Sequence[Batch], stream: Stream, plan: Plan, accelerator: Accelerator, seed: Callable[[int], None]
) -> Tensor:
    """Puts the gradient of a step's loss into the parameters; returns that loss, a mean over samples and members."""
    total = torch.zeros((), device=accelerator.device)
    for forward, batch in enumerate(made):
        places = stream.division.places(run.step, forward, stream.rank)
        weights = bootstrap_weights(plan.seed, places, run.network.members) if plan.bootstrap else None
        with accelerator.accumulate(run.model):
            seed(forward)
            loss = cross_entropy(run.model, batch, accelerator.device, plan.recipe.label_smoothing, weights)
            loss = loss / plan.recipe.batch
            # Processes and passes are averaged by those who add them up; the loss is a sum over samples already.
            accelerator.backward(loss * len(made) * stream.division.world_size)
        total += loss.detach()
    summed: Tensor = accelerator.reduce(total, "sum")
    return summed


def cross_entropy(
    model: Any, batch: Batch, device: torch.device, label_smoothing: float, weights: Tensor | None = None
) -> Tensor:
    """The mean over members of the cross-entropy, summed over samples, each `weights` `[M,B]` times if given."""
    assert batch.labels is not None
    inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.inputs.items()}
    logits = model(**inputs).member_logits  # [M,B,C]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    labels = batch.labels.to(device).expand(len(logits), -1)
    losses: Tensor = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none", label_smoothing=label_smoothing
    )
    if weights is not None:
        losses = losses * weights.flatten().to(losses)
    return losses.sum() / len(logits)


def bootstrap_weights(seed: int, places: Sequence[int], members: int) -> Tensor:
    """`[M,B]` draws of mean one: how much each member makes of each sample.

    Members that start out equal and see the same samples stay equal; the Bayesian bootstrap (Rubin 1981) tells them
    apart without costing any of them samples.
    """
    draws = [np.random.default_rng([seed, MEMBERS, place]).exponential(size=members) for place in places]
    return torch.from_numpy(np.stack(draws, 1))


def _validate(run: Run, batches: Batches, plan: Plan, log: Log) -> None:
    check = validate_pairs if plan.recipe.loss == "contrastive" else validate
    result = check(run.network, batches)
    log.write({"step": run.step, **result.to_json()})
    if result.better_than(run.best):
        run.best, run.best_step = result, run.step
        run.best_tensors = _trained_tensors(run.network)
    if result.accuracy >= run.reference + plan.recipe.improvement and result.accuracy > run.reference:
        run.reference, run.without_improvement = result.accuracy, 0
    else:
        run.without_improvement += 1
    run.stopped = 0 < plan.recipe.patience <= run.without_improvement


def _save(run: Run, plan: Plan, accelerator: Accelerator) -> None:
    accelerator.wait_for_everyone()
    if not accelerator.is_main_process:
        return
    state = {
        "run": _identity(plan),
        "step": run.step,
        "model": _trained_tensors(run.network),
        "optimizer": run.optimizer.state_dict(),
        "schedule": run.schedule.state_dict(),
        "scaler": accelerator.scaler.state_dict() if accelerator.scaler is not None else None,
        "best": run.best.to_json() if run.best else None,
        "best_step": run.best_step,
        "best_tensors": run.best_tensors,
        "reference": run.reference,
        "without_improvement": run.without_improvement,
        "stopped": run.stopped,
    }
    save_state(plan.folder, run.step, state, plan.keep)


def _identity(plan: Plan) -> dict[str, Any]:
    return {**to_json(plan.recipe), "lr": plan.lr, "seed": plan.seed, "steps": plan.steps, **plan.run}


def _trained_tensors(network: Hydra) -> dict[str, Tensor]:
    return {name: p.detach().cpu().clone() for name, p in network.named_parameters() if p.requires_grad}


@torch.no_grad()
def _restore(network: Hydra, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        if name in tensors:
            parameter.copy_(tensors[name])


def _is_finite(network: Hydra) -> bool:
    return all(bool(p.isfinite().all()) for p in network.parameters() if p.requires_grad)


def _give_up(run: Run, checkpoint: Checkpoint, plan: Plan, accelerator: Accelerator, loss: float) -> None:
    """Keeps the last good weights and raises TrainingError."""
    what = f"the loss is {loss}" if not math.isfinite(loss) else "a weight is no longer finite"
    remedy = f"lower the rate (--set lr={plan.lr / 3:.0e}) or set --set clip=1"
    state = load_state(plan.folder, _identity(plan))
    good = run.best_tensors or (state["model"] if state else {})
    if not good:
        raise TrainingError(f"{what} at step {run.step}, before anything was saved: {remedy}")
    path, step = plan.folder / LAST_GOOD, run.best_step if run.best_tensors else state["step"] if state else 0
    _restore(run.network, good)
    if accelerator.is_main_process:
        write_checkpoint(network_checkpoint(run.network, checkpoint), path, force=True)
    raise TrainingError(f"{what} at step {run.step}: the weights of step {step} are kept in {path}: {remedy}")
