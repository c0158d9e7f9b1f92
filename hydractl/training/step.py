"""One optimiser step over the samples of a recipe's batch, in as many forward passes as it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor

from hydractl.data.batches import Batch
from hydractl.model.hydra import Hydra
from hydractl.training.contrastive import bound_scale, contrastive_backward
from hydractl.training.order import DROPOUT, derived_seed
from hydractl.training.outliers import outliers_of_a_step, unsureness_loss
from hydractl.training.recipe import Recipe
from hydractl.training.teachers import Teachers, taught_loss
from hydractl.training.trial import Trial


@dataclass(frozen=True, eq=False)
class Learner:
    """A network and what changes it. `model` is the network as accelerate wraps it."""

    network: Hydra
    model: Any
    optimizer: Any
    schedule: Any
    teachers: Teachers | None = None


def take_step(learner: Learner, batches: Sequence[Batch], step: int, trial: Trial, accelerator: Accelerator) -> float:
    """Changes the network by one step; returns the step's mean loss.

    Args:
        batches: this process's share of the step, one for each forward pass.
        step: its number, from 0 on.
    """
    learner.network.train()

    def seed(forward: int) -> None:
        # Dropout follows from seed, step and place too: nothing about it has to be remembered for a resume.
        torch.manual_seed(derived_seed(trial.seeds.noise, DROPOUT, step, forward, accelerator.process_index))

    if trial.recipe.loss == "contrastive":
        loss = contrastive_backward(learner.model, learner.network, batches, accelerator, seed)
    else:
        loss = _backward(learner, batches, trial, accelerator, seed)
    if trial.recipe.clip:
        accelerator.clip_grad_norm_(learner.network.parameters(), trial.recipe.clip)
    learner.optimizer.step()
    if trial.recipe.loss == "contrastive":
        bound_scale(learner.network)
    learner.optimizer.zero_grad()
    if not learner.optimizer.step_was_skipped:
        learner.schedule.step()
    return loss.item()


def _backward(
    learner: Learner,
    batches: Sequence[Batch],
    trial: Trial,
    accelerator: Accelerator,
    seed: Callable[[int], None],
) -> Tensor:
    """Puts the gradient of a step's loss into the parameters; returns that loss, a mean over samples and members."""
    total = torch.zeros((), device=accelerator.device)
    for forward, batch in enumerate(batches):
        with accelerator.accumulate(learner.model):
            seed(forward)
            loss = batch_loss(learner.model, batch, accelerator.device, trial.recipe, learner.teachers)
            # Accelerate and DDP average over passes and processes; what they add up here is to be a sum.
            accelerator.backward(loss * len(batches) * accelerator.num_processes)
        total += loss.detach()
    return accelerator.reduce(total, "sum")


def batch_loss(
    model: Any, batch: Batch, device: torch.device, recipe: Recipe, teachers: Teachers | None = None
) -> Tensor:
    """What a batch adds to its step's loss, which is the members' mean; samples without labels are outliers."""
    inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.inputs.items()}
    logits = model(**inputs).member_logits  # [M,B,C]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if batch.labels is None:
        return recipe.outlier_weight * unsureness_loss(logits) / outliers_of_a_step(recipe)
    labels = batch.labels.to(device).expand(len(logits), -1)
    losses: Tensor = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none", label_smoothing=recipe.label_smoothing
    )
    loss = losses.sum()
    if teachers is not None:
        taught = taught_loss(logits, teachers.probabilities(inputs).to(logits.dtype)).sum()
        loss = recipe.teacher_weight * taught + (1 - recipe.teacher_weight) * loss
    return loss / len(logits) / recipe.batch
