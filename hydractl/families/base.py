"""Pre-trained networks without a classifier, completed so that they read as classifiers that are still to train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hydractl.checkpoint.slots import Slot, slots
from hydractl.checkpoint.tensors import LazyTensor, TensorMap
from hydractl.families.convert import fitting_table, model_spec
from hydractl.families.family import Family

STANDARD_DEVIATION = 0.02  # as BERT and its kin are initialised


def complete_base(name: str, family: Family, config: Mapping[str, Any], tensors: TensorMap) -> dict[str, LazyTensor]:
    """The tensors of a base network, with what a classifier has on top: a pooler drawn at random, zeros for the rest.

    A checkpoint that has it all comes back as it is. Base classes of transformers leave the name of the encoder
    out (`encoder.layer.0` for `bert.encoder.layer.0`); it is put back.
    """
    spec = model_spec(name, family, config)
    table = fitting_table(family, spec, _with_prefix(family, tensors).keys())
    complete = _with_prefix(family, tensors)
    for ours, slot in slots(spec).items():
        theirs = table[ours].name
        if slot.group in ("classifier", "pooler") and theirs not in complete:
            complete[theirs] = _fresh(ours, slot)
    return complete


def _with_prefix(family: Family, tensors: TensorMap) -> dict[str, LazyTensor]:
    prefix = f"{family.model_type}."
    if any(name.startswith(prefix) for name in tensors):
        return dict(tensors)
    return {name if name.startswith("classifier.") else prefix + name: tensor for name, tensor in tensors.items()}


def _fresh(name: str, slot: Slot) -> LazyTensor:
    def load() -> Tensor:
        if slot.group == "pooler" and name.endswith(".weight"):
            return torch.empty(slot.shape).normal_(std=STANDARD_DEVIATION, generator=torch.Generator().manual_seed(0))
        return torch.zeros(slot.shape)

    return LazyTensor(slot.shape, torch.float32, load)
