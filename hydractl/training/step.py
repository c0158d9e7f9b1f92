"""One optimiser step over the samples of a recipe's batch, in as many forward passes as it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor

from hydractl.data.batches import Batch
from hydractl.model.hydra import Hydra
from hydractl.training.contrastive import contrastive_backward
from hydractl.training.plan import Plan
from hydractl.training.stream import DROPOUT, MEMBERS, TrainingBatches, derived_seed


@dataclass(frozen=True, eq=False)
class Learner:
    """A network and what changes it. `model` is the network as accelerate wraps it."""

    network: Hydra
    model: Any
    optimizer: Any
    schedule: Any


def take_step(
    learner: Learner, made: Sequence[Batch], step: int, stream: TrainingBatches, plan: Plan, accelerator: Accelerator
) -> float:
    """Changes the network by one step; returns the step's mean loss.

    Args:
        made: this process's batches of the step, out of `stream`, `[passes]`.
        step: its number, from 0 on.
    """
    learner.network.train()

    def seed(forward: int) -> None:
        # Dropout follows from seed, step and place too: nothing about it has to be remembered for a resume.
        torch.manual_seed(derived_seed(plan.seed, DROPOUT, step, forward, stream.rank))

    if plan.recipe.loss == "contrastive":
        loss = contrastive_backward(learner.model, learner.network, made, accelerator, seed)
    else:
        loss = _backward(learner, made, step, stream, plan, accelerator, seed)
    if plan.recipe.clip:
        accelerator.clip_grad_norm_(learner.network.parameters(), plan.recipe.clip)
    learner.optimizer.step()
    learner.optimizer.zero_grad()
    if not learner.optimizer.step_was_skipped:
        learner.schedule.step()
    return loss.item()


def _backward(
    learner: Learner,
    made: Sequence[Batch],
    step: int,
    stream: TrainingBatches,
    plan: Plan,
    accelerator: Accelerator,
    seed: Callable[[int], None],
) -> Tensor:
    """Puts the gradient of a step's loss into the parameters; returns that loss, a mean over samples and members."""
    total = torch.zeros((), device=accelerator.device)
    for forward, batch in enumerate(made):
        places = stream.division.places(step, forward, stream.rank)
        weights = bootstrap_weights(plan.seed, places, learner.network.members) if plan.bootstrap else None
        with accelerator.accumulate(learner.model):
            seed(forward)
            loss = cross_entropy(learner.model, batch, accelerator.device, plan.recipe.label_smoothing, weights)
            loss = loss / plan.recipe.batch
            # Processes and passes are averaged by those who add them up; the loss is a sum over samples already.
            accelerator.backward(loss * len(made) * stream.division.world_size)
        total += loss.detach()
    return accelerator.reduce(total, "sum")


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
