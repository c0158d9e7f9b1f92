"""Which tensors train, and which decay."""

from __future__ import annotations

import pytest

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import slots
from hydractl.errors import OptionError
from hydractl.training.network import decays, trained_names


def test_biases_and_norms_do_not_decay(bert: Checkpoint) -> None:
    table = slots(bert.spec)
    without = {name for name, slot in table.items() if not decays(name, slot)}
    assert without == {name for name in table if name.endswith(".bias") or "norm" in name}


def test_unknown_parts_and_layers(vit: Checkpoint) -> None:
    with pytest.raises(OptionError, match="`train_only` heads: .* attention, mlp"):
        trained_names(vit.spec, ["heads"])
    with pytest.raises(OptionError, match="`freeze_below` 3: the vision tower has 2 layers"):
        trained_names(vit.spec, freeze_below=3)
    with pytest.raises(OptionError, match="nothing is left to train"):
        trained_names(vit.spec, ["embeddings"], freeze_below=1)
