"""A fresh classifier for labels a checkpoint was not trained for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import slots, stored_shape
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import OptionError
from hydractl.training.order import NEW_CLASSIFIER, derived_seed

STANDARD_DEVIATION = 0.02  # as ViT, BERT and their kin are initialised


def with_new_classifier(
    checkpoint: Checkpoint, labels: tuple[str, ...], how: Literal["zeros", "normal"], seed: int = 0
) -> Checkpoint:
    """The checkpoint with an untrained classifier over `labels`, each member its own where theirs were their own.

    Args:
        how: all zeros, or weights drawn from a normal distribution of standard deviation 0.02 (biases zero).
        seed: of that draw; members of one ensemble differ by it.

    Raises:
        OptionError: a zero-shot model, which has no classifier, one that members share and adapt, or no labels.
    """
    if checkpoint.spec.task == "zero-shot":
        raise OptionError(
            f"{checkpoint.name}: is a zero-shot model, which has no classifier to replace: start from CLIP as "
            "transformers writes it, or from timm's image tower of it"
        )
    if checkpoint.spec.adapter is not None and "classifier" in checkpoint.spec.adapter.parts:
        raise OptionError(
            f"{checkpoint.name}: its members adapt the classifier that they share: give each its own first, "
            "with `fuse` and `separate` all"
        )
    if len(labels) < 2:
        raise OptionError(f"a classifier over {len(labels)} labels: needs two or more")
    spec = replace(checkpoint.spec, classes=len(labels))
    generator = torch.Generator().manual_seed(derived_seed(seed, NEW_CLASSIFIER))
    tensors = dict(checkpoint.tensors)
    for name, slot in slots(spec).items():
        if slot.group == "classifier":
            shape = stored_shape(slot, spec, checkpoint.heads, name in checkpoint.shared)
            fresh = torch.zeros(shape)
            if how == "normal" and name.endswith(".weight"):
                fresh.normal_(std=STANDARD_DEVIATION, generator=generator)
            tensors[name] = held(fresh.to(checkpoint.tensors[name].dtype))
    config = {**checkpoint.config, **_label_fields(labels)}
    return replace(checkpoint, spec=spec, config=config, labels=labels, tensors=tensors, temperature=None)


def held(tensor: Tensor) -> LazyTensor:
    """A tensor that is in memory already, as a checkpoint holds it."""
    return LazyTensor(tuple(tensor.shape), tensor.dtype, lambda: tensor)


def _label_fields(labels: tuple[str, ...]) -> Mapping[str, Any]:
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
        "num_labels": len(labels),
    }
