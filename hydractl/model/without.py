"""A model made from one that is loaded already: without some of its heads, or its weights open to change."""

from __future__ import annotations

from collections.abc import Mapping, Set

import torch
from torch import Tensor

from hydractl.checkpoint.heads import Head, KeptHeads, without
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

    return _rebuilt(model, heads, {name: sliced(name, tensor) for name, tensor in model.state_dict().items()})


def copied(model: Hydra) -> Hydra:
    """The model a second time, its tensors being the first one's until a parameter is given others."""
    return _rebuilt(model, model.heads, model.state_dict())


def _rebuilt(model: Hydra, heads: KeptHeads, state: Mapping[str, Tensor]) -> Hydra:
    rebuilt = Hydra(model.spec, heads, model.shared, {name: tuple(tensor.shape) for name, tensor in state.items()})
    rebuilt.load_state_dict(state, assign=True)
    rebuilt.labels, rebuilt.temperature, rebuilt.preprocessor = model.labels, model.temperature, model.preprocessor
    rebuilt.class_prompts = model.class_prompts
    return rebuilt.eval().requires_grad_(False)
