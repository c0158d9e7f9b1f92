"""One optimiser step of a recipe, in as many forward passes as it takes: timm's optimiser, transformers' schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from hydractl.checkpoint.slots import Slot
from hydractl.data.batching import Batch
from hydractl.errors import OptionError
from hydractl.model.hydra import Hydra
from hydractl.training.losses import Teachers, batch_loss, bound_scale, contrastive_backward
from hydractl.training.network import decays
from hydractl.training.order import DROPOUT, derived_seed
from hydractl.training.recipe import Recipe

#: timm's own "sgd" takes Nesterov's step, which recipes call "nesterov".
TIMM_NAMES = {"sgd": "momentum"}
#: Optimisers that torch updates in one pass on a processor.
FUSED = ("adam", "adamw")


@dataclass(frozen=True, eq=False)
class Learner:
    """A network and what changes it.

    Attributes:
        model: the network as accelerate wraps it.
        noise: the seed of dropout.
    """

    network: Hydra
    model: Any
    optimizer: Any
    schedule: Any
    recipe: Recipe
    noise: int
    accelerator: Accelerator
    teachers: Teachers | None = None

    def take_step(self, batches: Sequence[Batch], step: int) -> float:
        """Changes the network by one step and returns the step's mean loss.

        Args:
            batches: this process's share of the step, one for each forward pass.
            step: its number, from 0 on.
        """
        self.network.train()

        def seed(forward: int) -> None:
            # Dropout follows from seed, step and place, so that a run that resumes needs to remember nothing of it.
            place = (step, forward, self.accelerator.process_index)
            torch.manual_seed(derived_seed(self.noise, DROPOUT, *place))

        contrastive = self.recipe.loss == "contrastive"
        if contrastive:
            loss = contrastive_backward(self.model, batches, self.accelerator, seed)
        else:
            loss = self._backward(batches, seed)
        if self.recipe.clip:
            self.accelerator.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        self.optimizer.step()
        if contrastive:
            bound_scale(self.network)
        self.optimizer.zero_grad()
        if not self.optimizer.step_was_skipped:
            self.schedule.step()
        return loss.item()

    def _backward(self, batches: Sequence[Batch], seed: Callable[[int], None]) -> Tensor:
        """Puts the gradient of a step's loss into the parameters; returns the loss, a mean over samples and members."""
        total = torch.zeros((), device=self.accelerator.device)
        for forward, batch in enumerate(batches):
            with self.accelerator.accumulate(self.model):
                seed(forward)
                loss = self._loss(batch)
                # Accelerate and DDP average over passes and processes; what they add up here is to be a sum.
                self.accelerator.backward(loss * len(batches) * self.accelerator.num_processes)
            total += loss.detach()
        return self.accelerator.reduce(total, "sum")

    def _loss(self, batch: Batch) -> Tensor:
        device = self.accelerator.device
        inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.inputs.items()}
        logits = self.model(**inputs).member_logits
        if batch.labels is None:
            return batch_loss(logits, None, self.recipe)
        taught = None if self.teachers is None else self.teachers.probabilities(inputs)
        return batch_loss(logits, batch.labels.to(device), self.recipe, taught)


def build_optimizer(
    recipe: Recipe, lr: float, parameters: Iterable[tuple[str, Slot, nn.Parameter]]
) -> torch.optim.Optimizer:
    """Returns the recipe's optimiser over two groups: tensors that decay, and biases and norms that do not.

    Args:
        parameters: those that train, each with the tensor it belongs to.

    Raises:
        OptionError: timm has no optimiser of that name.
    """
    from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]

    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, slot, parameter in parameters:
        groups[decays(name, slot)].append(parameter)
    wanted = [
        {"params": members, "weight_decay": recipe.weight_decay if decay else 0.0}
        for decay, members in groups.items()
        if members
    ]
    name, adam = TIMM_NAMES.get(recipe.optimizer, recipe.optimizer), _of_adam(recipe)
    # One pass over the weights in place of seven; on GPUs torch's own choice is as fast.
    on_processor = all(parameter.device.type == "cpu" for members in groups.values() for parameter in members)
    more: dict[str, Any] = adam | ({"fused": True} if name in FUSED and on_processor else {})
    try:
        built: torch.optim.Optimizer = create_optimizer_v2(wanted, opt=name, lr=lr, momentum=recipe.momentum, **more)
    except (AssertionError, ValueError, KeyError) as error:
        raise OptionError(
            f"optimizer {recipe.optimizer!r}: timm cannot build it ({error}): try sgd or adamw"
        ) from error
    for setting, value in adam.items():  # timm silently drops what an optimiser does not have
        if built.defaults.get(setting) != value:
            raise OptionError(f"{setting}: optimizer {recipe.optimizer!r} has none: leave it out, or try adamw")
    return built


def _of_adam(recipe: Recipe) -> dict[str, Any]:
    """Returns what the recipe sets for an optimiser like Adam."""
    betas = {"betas": recipe.betas} if recipe.betas else {}
    return betas | ({"eps": recipe.eps} if recipe.eps else {})


def build_schedule(recipe: Recipe, optimizer: torch.optim.Optimizer, steps: int) -> Any:
    """Returns the recipe's learning rate over `steps` optimiser steps, as a scheduler of transformers."""
    from transformers import get_scheduler

    warmup = warmup_steps(recipe, steps)
    if recipe.schedule == "constant":
        return get_scheduler("constant_with_warmup", optimizer, warmup)
    if recipe.schedule == "linear":
        return get_scheduler("linear", optimizer, warmup, steps)
    return get_scheduler("cosine_with_min_lr", optimizer, warmup, steps, {"min_lr_rate": recipe.final_rate})


def warmup_steps(recipe: Recipe, steps: int) -> int:
    """Returns the number of steps that warm up."""
    return ceil(recipe.warmup * steps) if recipe.warmup < 1 else int(recipe.warmup)


def step_count(recipe: Recipe, samples: int | None) -> int:
    """Returns the number of optimiser steps that the recipe takes over a number of training samples.

    Args:
        samples: None for a stream of unknown length.

    Raises:
        OptionError: the recipe has neither steps nor epochs, or epochs of unknown length.
    """
    if recipe.steps:
        return recipe.steps
    if not recipe.epochs:
        raise OptionError("the recipe has neither steps nor epochs: pass `steps` or `epochs`")
    if samples is None:
        raise OptionError(f"{recipe.epochs:g} epochs of a stream of unknown length: pass `steps`")
    return max(1, round(recipe.epochs * samples / recipe.batch))


def validation_interval(recipe: Recipe, samples: int | None, steps: int) -> int:
    """Returns the steps between two validations: the recipe's, or an epoch if its length is known."""
    epoch = steps if samples is None else max(1, round(samples / recipe.batch))
    return min(steps, recipe.validate_every or epoch)
