"""A checkpoint as a network that trains in place, and back: its classifier, the tensors that train, their optimiser."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from typing import Any, Literal

import torch
from torch import nn

from hydractl.checkpoint.calibration import NOT_CALIBRATED
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.layout import stored_shapes
from hydractl.checkpoint.slots import GROUPS, Slot, slots
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tensors import in_memory
from hydractl.checkpoint.tower_spec import TowerSpec
from hydractl.errors import OptionError
from hydractl.inference import load_checkpoint
from hydractl.model.hydra import Hydra
from hydractl.tasks.all_tasks import find_task
from hydractl.training.recipe import Recipe
from hydractl.training.trainset import NEW_CLASSIFIER, derived_seed

STANDARD_DEVIATION = 0.02  # as ViT, BERT and their kin are initialised
#: timm's own "sgd" takes Nesterov's step, which recipes call "nesterov".
TIMM_NAMES = {"sgd": "momentum"}
#: Optimisers that torch updates in one pass on a processor.
FUSED = ("adam", "adamw")


def build_network(checkpoint: Checkpoint, recipe: Recipe) -> Hydra:
    """Returns the network on the CPU, in float32 or wider, with the recipe's dropout; only what trains is unfrozen.

    It is not calibrated, as its result is not.
    """
    spec = checkpoint.spec
    if recipe.dropout >= 0:
        spec = replace(spec, towers=tuple(replace(tower, dropout=recipe.dropout) for tower in spec.towers))
    plain = replace(checkpoint, spec=spec, calibration=NOT_CALIBRATED)
    model = load_checkpoint(plain, "cpu", training_dtype(checkpoint))
    chosen = trained_names(checkpoint.spec, recipe.train_only, recipe.freeze_below)
    for name, parameter in model.named_parameters():
        # A layer without heads has tensors without numbers, which no gradient reaches.
        if name in chosen and parameter.numel() > 0:
            # The numbers of a checkpoint in memory are whoever's gave it: training would change them in place.
            parameter.data = parameter.detach().clone()
            parameter.requires_grad_(True)
    return model


def training_dtype(checkpoint: Checkpoint) -> torch.dtype:
    """Returns float64 if all weights are that wide, else float32."""
    dtypes = {tensor.dtype for tensor in checkpoint.tensors.values() if tensor.dtype.is_floating_point}
    return torch.float64 if dtypes == {torch.float64} else torch.float32


def trained_parameters(model: Hydra) -> Iterator[tuple[str, Slot, nn.Parameter]]:
    """Yields every parameter that trains, with the tensor it belongs to."""
    assert model.origin is not None
    table = model.origin.slots()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            yield name, table[name], parameter


def network_checkpoint(model: Hydra, checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint a network was built from with its present numbers, in the checkpoint's own dtypes."""
    numbers = model.state_dict()
    tensors = {name: in_memory(numbers[name].cpu().to(tensor.dtype)) for name, tensor in checkpoint.tensors.items()}
    return replace(checkpoint, tensors=tensors, calibration=NOT_CALIBRATED)


@contextmanager
def as_written(model: Hydra, checkpoint: Checkpoint) -> Iterator[None]:
    """Gives a network the numbers that its file will have, of fewer bits than those that train, for a while."""
    trained = [
        (parameter, parameter.data, checkpoint.tensors[name].dtype) for name, _, parameter in trained_parameters(model)
    ]
    try:
        for parameter, numbers, dtype in trained:
            parameter.data = numbers if dtype == numbers.dtype else numbers.to(dtype).to(numbers.dtype)
        yield
    finally:
        for parameter, numbers, _ in trained:
            parameter.data = numbers


def trained_names(spec: ModelSpec, train_only: Sequence[str] = (), freeze_below: int = 0) -> frozenset[str]:
    """Returns the names of the tensors that train; all others stay bit for bit.

    Args:
        train_only: parts of the network: a group ("mlp"), a tower ("text"), a group of one tower ("text.mlp"), or
            one tensor ("logit_scale"). Empty for all.
        freeze_below: embeddings and layers below this one are frozen, in every tower; negative counts from the
            top, so -5 trains the last five layers and what follows them. 0 freezes nothing.

    Raises:
        OptionError: a part or layer that the model does not have, or nothing is left to train.
    """
    table = slots(spec)
    for part in train_only:
        if not any(_is_part(part, name, slot) for name, slot in table.items()):
            towers = [tower.name for tower in spec.towers]
            raise OptionError(
                f"`train_only` {part}: this model has no such part: choose {', '.join(GROUPS)}, {', '.join(towers)}, "
                f"or a part of one tower as in {towers[0]}.mlp"
            )
    chosen = frozenset(
        name
        for name, slot in table.items()
        if (not train_only or any(_is_part(part, name, slot) for part in train_only))
        and not _is_below(name, slot, spec, freeze_below)
    )
    if not chosen:
        raise OptionError(
            f"`train_only` {','.join(train_only)}, `freeze_below` {freeze_below}: nothing is left to train: name more "
            "parts or layers"
        )
    return chosen


def decays(name: str, slot: Slot) -> bool:
    """Returns whether weight decay applies to a tensor: not to biases, norms and a scale."""
    part, _, kind = name.rpartition(".")
    return kind != "bias" and slot.group != "norm" and not part.endswith("norm") and len(slot.shape) > 0


def _is_part(part: str, name: str, slot: Slot) -> bool:
    return part in (name, slot.tower, slot.group, f"{slot.tower}.{slot.group}")


def _first(tower: TowerSpec, freeze_below: int) -> int:
    if freeze_below > tower.layers:
        raise OptionError(
            f"`freeze_below` {freeze_below}: the {tower.name} tower has only {tower.layers} layers: freeze fewer"
        )
    return freeze_below if freeze_below >= 0 else max(tower.layers + freeze_below, 0)


def _is_below(name: str, slot: Slot, spec: ModelSpec, freeze_below: int) -> bool:
    if freeze_below == 0 or slot.tower is None:
        return False
    first = _first(spec.tower(slot.tower), freeze_below)
    if slot.layer is not None:
        return slot.layer < first
    return name.startswith(f"{slot.tower}.embeddings.")


def with_new_classifier(
    checkpoint: Checkpoint, labels: tuple[str, ...], how: Literal["zeros", "normal"], seed: int = 0
) -> Checkpoint:
    """Returns the checkpoint with an untrained classifier over `labels`; members that had their own get their own.

    Args:
        how: all zeros, or weights drawn from a normal distribution of standard deviation 0.02 (biases zero).
        seed: of that draw; members of one ensemble differ by it.

    Raises:
        OptionError: a zero-shot model, which has no classifier, or too few labels.
    """
    task = find_task(checkpoint.spec.task)
    task.require_classifier(
        f"{checkpoint.name}: is a zero-shot model, which has no classifier to replace: start from CLIP as "
        "transformers writes it, or from timm's image tower of it"
    )
    if len(labels) < task.fewest:
        raise OptionError(f"a classifier over {len(labels)} labels: expected two or more")
    spec = replace(checkpoint.spec, classes=len(labels))
    generator = torch.Generator().manual_seed(derived_seed(seed, NEW_CLASSIFIER))
    tensors, shapes = dict(checkpoint.tensors), stored_shapes(spec, checkpoint.layout)
    for name, slot in slots(spec).items():
        if slot.group == "classifier":
            fresh = torch.zeros(shapes[name])
            if how == "normal" and name.endswith(".weight"):
                fresh.normal_(std=STANDARD_DEVIATION, generator=generator)
            tensors[name] = in_memory(fresh.to(checkpoint.tensors[name].dtype))
    numbers = {label: number for number, label in enumerate(labels)}
    names = {str(number): label for label, number in numbers.items()}
    config = {**checkpoint.config, "id2label": names, "label2id": numbers, "num_labels": len(labels)}
    fresh_network = replace(checkpoint, spec=spec, config=config, labels=labels, tensors=tensors)
    return replace(fresh_network, calibration=NOT_CALIBRATED)


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
            raise OptionError(f"{setting}: optimizer {recipe.optimizer!r} does not take it: leave it out, or try adamw")
    return built


def build_schedule(recipe: Recipe, optimizer: torch.optim.Optimizer, steps: int) -> Any:
    """Returns the recipe's learning rate over `steps` optimiser steps, as a scheduler of transformers."""
    from transformers import get_scheduler

    warmup = ceil(recipe.warmup * steps) if recipe.warmup < 1 else int(recipe.warmup)
    if recipe.schedule == "constant":
        return get_scheduler("constant_with_warmup", optimizer, warmup)
    if recipe.schedule == "linear":
        return get_scheduler("linear", optimizer, warmup, steps)
    return get_scheduler("cosine_with_min_lr", optimizer, warmup, steps, {"min_lr_rate": recipe.final_rate})


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
