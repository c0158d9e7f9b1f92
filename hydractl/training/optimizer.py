"""Optimiser and schedule of a recipe, by timm and transformers."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any

import torch
from torch import nn

from hydractl.checkpoint.slots import Slot
from hydractl.errors import OptionError
from hydractl.training.recipe import Recipe
from hydractl.training.selection import decays

#: timm's own "sgd" takes Nesterov's step, which recipes call "nesterov".
TIMM_NAMES = {"sgd": "momentum"}


#: What torch updates in one pass on a processor.
FUSED = ("adam", "adamw")


def build_optimizer(
    recipe: Recipe, lr: float, parameters: Iterable[tuple[str, Slot, nn.Parameter]]
) -> torch.optim.Optimizer:
    """The recipe's optimiser over two groups: tensors that decay, and biases and norms that do not.

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
    for setting, value in adam.items():  # timm leaves out in silence what an optimiser does not have
        if built.defaults.get(setting) != value:
            raise OptionError(f"{setting}: optimizer {recipe.optimizer!r} has none: leave it out, or try adamw")
    return built


def _of_adam(recipe: Recipe) -> dict[str, Any]:
    """What the recipe sets of an optimiser like Adam."""
    betas = {"betas": recipe.betas} if recipe.betas else {}
    return betas | ({"eps": recipe.eps} if recipe.eps else {})


def build_schedule(recipe: Recipe, optimizer: torch.optim.Optimizer, steps: int) -> Any:
    """The recipe's learning rate over `steps` optimiser steps, as a torch scheduler by transformers."""
    from transformers import get_scheduler

    warmup = warmup_steps(recipe, steps)
    if recipe.schedule == "constant":
        return get_scheduler("constant_with_warmup", optimizer, warmup)
    if recipe.schedule == "linear":
        return get_scheduler("linear", optimizer, warmup, steps)
    return get_scheduler("cosine_with_min_lr", optimizer, warmup, steps, {"min_lr_rate": recipe.final_rate})


def warmup_steps(recipe: Recipe, steps: int) -> int:
    """How many of the steps warm up."""
    return ceil(recipe.warmup * steps) if recipe.warmup < 1 else int(recipe.warmup)


def step_count(recipe: Recipe, samples: int | None) -> int:
    """How many optimiser steps the recipe takes over so many training samples.

    Args:
        samples: None where data is a stream that does not say.

    Raises:
        OptionError: it says neither steps nor epochs, or epochs of a length that is not known.
    """
    if recipe.steps:
        return recipe.steps
    if not recipe.epochs:
        raise OptionError("the recipe says neither steps nor epochs: pass `steps` or `epochs`")
    if samples is None:
        raise OptionError(f"{recipe.epochs:g} epochs of a stream that does not say how long it is: pass `steps`")
    return max(1, round(recipe.epochs * samples / recipe.batch))


def validation_interval(recipe: Recipe, samples: int | None, steps: int) -> int:
    """Steps between two validations: the recipe's, or one epoch where its length is known; at the end in any case."""
    epoch = steps if samples is None else max(1, round(samples / recipe.batch))
    return min(steps, recipe.validate_every or epoch)
