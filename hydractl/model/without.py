"""A model without some of its heads, made from a model that is loaded already."""

from __future__ import annotations

from collections.abc import Set

import torch
from torch import Tensor

from hydractl.checkpoint.heads import Head, without
from hydractl.checkpoint.slots import kept_entries, slots
from hydractl.model.hydra import Hydra


def without_heads(model: Hydra, gone: Set[Head]) -> Hydra:
    """The single-member model less the heads that are gone; every tensor they have no part in is the model's own."""
    if not gone:
        return model
    heads, table = without(model.heads, gone), slots(model.spec)

    def sliced(name: str, tensor: Tensor) -> Tensor:
        entries = kept_entries(table[name], model.spec, model.heads, heads)
        if entries is None:
            return tensor
        places = torch.tensor(entries, dtype=torch.long, device=tensor.device)
        return tensor.index_select(table[name].head_axis or 0, places)

    state = {name: sliced(name, tensor) for name, tensor in model.state_dict().items()}
    pruned = Hydra(model.spec, heads, model.shared, {name: tuple(tensor.shape) for name, tensor in state.items()})
    pruned.load_state_dict(state, assign=True)
    pruned.labels, pruned.temperature, pruned.preprocessor = model.labels, model.temperature, model.preprocessor
    pruned.class_prompts = model.class_prompts
    return pruned.eval().requires_grad_(False)
