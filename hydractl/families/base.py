"""Networks without a classifier, completed so that they read as classifiers that are still to train."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hydractl.checkpoint.slots import Slot, slots
from hydractl.checkpoint.tensors import LazyTensor, TensorMap
from hydractl.families.convert import fitting_table, model_spec
from hydractl.families.family import Base, Family

STANDARD_DEVIATION = 0.02  # as BERT and its kin are initialised


def complete_base(
    name: str, family: Family, config: Mapping[str, Any], tensors: TensorMap
) -> tuple[Mapping[str, Any], TensorMap]:
    """Config and tensors of a base network as those of a classifier: a pooler drawn at random, zeros for the rest.

    A checkpoint that has a classifier already comes back as it is.
    """
    if family.base is None:
        return config, tensors
    config = _classifier_config(family, family.base, config)
    inside = _inside_classifier(family.base, tensors)
    spec = model_spec(name, family, config)
    table = fitting_table(family, spec, inside.keys())
    dtype = next((inside[source.name].dtype for source in table.values() if source.name in inside), torch.float32)
    fresh = {
        table[ours].name: _fresh(ours, slot, dtype)
        for ours, slot in slots(spec).items()
        if slot.group in ("classifier", "pooler") and table[ours].name not in inside
    }
    return config, inside | fresh


def _classifier_config(family: Family, base: Base, config: Mapping[str, Any]) -> Mapping[str, Any]:
    if base.part is None or config.get("model_type") == family.model_type:
        return config
    return {"model_type": family.model_type, "architectures": list(family.architectures), base.part: config}


def _inside_classifier(base: Base, tensors: TensorMap) -> dict[str, LazyTensor]:
    """The encoder's tensors by their names inside a classifier."""
    is_bare = not any(name.startswith(base.prefix) for name in tensors)
    named = {base.prefix + name if is_bare else name: tensor for name, tensor in tensors.items()}
    return {
        name: tensor
        for name, tensor in named.items()
        if not any(re.fullmatch(pattern, name) for pattern in base.surplus)
    }


def _fresh(name: str, slot: Slot, dtype: torch.dtype) -> LazyTensor:
    def load() -> Tensor:
        drawn = torch.zeros(slot.shape)
        if slot.group == "pooler" and name.endswith(".weight"):
            drawn.normal_(std=STANDARD_DEVIATION, generator=torch.Generator().manual_seed(0))
        return drawn.to(dtype)

    return LazyTensor(slot.shape, dtype, load)
