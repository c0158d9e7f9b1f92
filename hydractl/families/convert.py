"""Turns the tensors of a transformers checkpoint into ours, accounting for every one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hydractl.checkpoint.contents import Checkpoint, shorten
from hydractl.checkpoint.slots import all_heads, slots, stored_shape
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import CheckpointError
from hydractl.families import config as read
from hydractl.families.family import Family


def from_transformers(
    name: str,
    family: Family,
    config: Mapping[str, Any],
    tensors: Mapping[str, LazyTensor],
    preprocessing: Mapping[str, Any],
) -> Checkpoint:
    """A dense checkpoint of one member over lazily renamed tensors.

    Raises:
        CheckpointError: the config asks for something not built here, or a tensor is missing, left over,
            misshapen, or given twice.
    """
    spec = model_spec(name, family, config)
    heads = all_heads(spec)
    shapes = {key: stored_shape(slot, spec, heads, shared=True) for key, slot in slots(spec).items()}
    renamed = _rename(name, family, spec, tensors)
    return Checkpoint(
        name=name,
        family=family.name,
        config=config,
        spec=spec,
        heads=heads,
        shared=frozenset(shapes),
        tensors={key: _shaped(name, key, renamed[key], shape) for key, shape in shapes.items()},
        labels=None if spec.task == "zero-shot" else read.labels(config),
        preprocessing=preprocessing,
    )


def model_spec(name: str, family: Family, config: Mapping[str, Any]) -> ModelSpec:
    """The network a config describes, after refusing fields with an effect that is not built here."""
    complete = family.complete(config)
    try:
        read.demand(complete, family.demanded, "config.json")
        return family.read_spec(complete)
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from error


def their_name(spelling: Mapping[str, str], ours: str) -> str:
    """What a spelling calls one of our tensors."""
    template = re.sub(r"\.layers\.(\d+)\.", ".layers.{i}.", ours)
    layer = re.search(r"\.layers\.(\d+)\.", ours)
    module, _, ending = template.rpartition(".")
    theirs = spelling[template] if template in spelling else f"{spelling[module]}.{ending}"
    return theirs.replace("{i}", layer[1]) if layer else theirs


def _rename(name: str, family: Family, spec: ModelSpec, tensors: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    current = _modernise(name, family, tensors)
    expected = slots(spec)
    tables = [{key: their_name(spelling, key) for key in expected} for spelling in family.spellings]
    table = max(tables, key=lambda t: sum(theirs in current for theirs in t.values()))
    if missing := sorted(theirs for theirs in table.values() if theirs not in current):
        raise _missing_error(name, family, missing, table["classifier.weight"] if spec.classes else None)
    left = sorted(
        key
        for key in current.keys() - set(table.values())
        if not any(re.fullmatch(pattern, key) for pattern in family.inert)
    )
    if left:
        raise CheckpointError(
            f"{name}: tensors that no part of a {family.title} with this config claims: {shorten(left)}"
        )
    return {key: current[theirs] for key, theirs in table.items()}


def _modernise(name: str, family: Family, tensors: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    current: dict[str, LazyTensor] = {}
    for key, tensor in tensors.items():
        ending = next((old for old in family.legacy if key.endswith(old)), None)
        modern = key.removesuffix(ending) + family.legacy[ending] if ending else key
        if modern in current:
            raise CheckpointError(f"{name}: holds {modern} under two spellings: keep one")
        current[modern] = tensor
    return current


def _missing_error(name: str, family: Family, missing: list[str], classifier: str | None) -> CheckpointError:
    if classifier in missing:
        return CheckpointError(
            f"{name}: is a base {family.title} without a classifier: fine-tune it for classification first, "
            f"or save it as {family.architectures[0]}"
        )
    return CheckpointError(f"{name}: tensors are missing: {shorten(missing)}: is this the right config.json?")


def _shaped(name: str, key: str, tensor: LazyTensor, shape: tuple[int, ...]) -> LazyTensor:
    def squeezed(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(n for n in sizes if n != 1)

    # Checkpoints differ in how many axes of length one a token or a position table has.
    if squeezed(tensor.shape) != squeezed(shape):
        raise CheckpointError(
            f"{name}: {key} has shape {list(tensor.shape)}, expected {list(shape)}: is this the right config.json?"
        )
    if not tensor.dtype.is_floating_point:
        raise CheckpointError(f"{name}: {key} holds {tensor.dtype}, expected floating-point numbers")
    return replace(tensor, shape=shape, load=lambda: tensor.load().reshape(shape))
