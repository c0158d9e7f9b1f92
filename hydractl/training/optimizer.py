"""The optimiser by timm, the learning rate's schedule by transformers, and the number of steps of a recipe."""

from collections.abc import Iterable
from math import ceil
from typing import Any

import torch
from torch import nn

from hydractl.checkpoint.slots import Slot
from hydractl.errors import OptionError
from hydractl.training.network import decays
from hydractl.training.recipe import Recipe

#: timm's own "sgd" takes Nesterov's step, which recipes call "nesterov".
TIMM_NAMES = {"sgd": "momentum"}
#: Optimisers that torch updates in one pass on a processor.
FUSED = ("adam", "adamw")


def build_optimizer(
    recipe: Recipe, lr: float, parameters: Iterable[tuple[str, Slot, nn.Parameter]]
) -> torch.optim.Optimizer:
    """Returns the recipe's optimiser over two groups: tensors that decay, and biases and norms that do not.

    Args:
        parameters: those that train, each with the tensor it belongs to.
    """
    from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]

    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, slot, parameter in parameters:
        groups[decays(name, slot)].append(parameter)
    parameter_groups = [
        {"params": members, "weight_decay": recipe.weight_decay if decay else 0.0}
        for decay, members in groups.items()
        if members
    ]
    name = TIMM_NAMES.get(recipe.optimizer, recipe.optimizer)
    adam = {setting: value for setting, value in (("betas", recipe.betas), ("eps", recipe.eps)) if value}
    # One pass over the weights in place of seven; on GPUs torch's own choice is as fast.
    on_processor = all(parameter.device.type == "cpu" for members in groups.values() for parameter in members)
    more: dict[str, Any] = adam | ({"fused": True} if name in FUSED and on_processor else {})
    try:
        built: torch.optim.Optimizer = create_optimizer_v2(
            parameter_groups, opt=name, lr=lr, momentum=recipe.momentum, **more
        )
    except (AssertionError, ValueError, KeyError) as error:
        raise OptionError(
            f"optimizer {recipe.optimizer!r}: timm cannot build it ({error}): try sgd or adamw"
        ) from error
    for setting, value in adam.items():  # timm silently drops what an optimiser does not have
        if built.defaults.get(setting) != value:
            raise OptionError(f"{setting}: optimizer {recipe.optimizer!r} has none: leave it out, or try adamw")
    return built


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


def step_count(recipe: Recipe, samples: int) -> int:
    """Returns the number of optimiser steps that the recipe takes over a number of training samples."""
    if recipe.steps:
        return recipe.steps
    if not recipe.epochs:
        raise OptionError("the recipe has neither steps nor epochs: pass `steps` or `epochs`")
    return max(1, round(recipe.epochs * samples / recipe.batch))


def validation_interval(recipe: Recipe, samples: int, steps: int) -> int:
    """Returns the steps between two validations: the recipe's, or an epoch."""
    return min(steps, recipe.validate_every or max(1, round(samples / recipe.batch)))
