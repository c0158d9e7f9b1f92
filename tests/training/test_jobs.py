"""What is trained, each for itself, and the files that it becomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError
from hydractl.surgery.fusion import fuse
from hydractl.training.ensembles import BatchEnsemble, Ensemble, LoraEnsemble, choose_ensemble
from hydractl.training.recipe import Recipe
from hydractl.training.run import choose_networks, sample_kind


def test_which_ensemble() -> None:
    assert choose_ensemble(None, "each") is None
    assert choose_ensemble(LoraEnsemble(rank=2), "3") == Ensemble(LoraEnsemble(rank=2), 3)
    assert choose_ensemble(None, None) is None
    with pytest.raises(OptionError, match="`members` 3: .*`method`"):
        choose_ensemble(None, 3)
    with pytest.raises(OptionError, match="`method` batch-ensemble needs .*`members`"):
        choose_ensemble(BatchEnsemble(), "each")
    with pytest.raises(OptionError, match="`joint` trains the members of a Hydra together"):
        choose_ensemble(None, "each", joint=True)


def test_which_networks(vit: Checkpoint) -> None:
    dense = replace(vit, name="models/vit.safetensors")
    hydra = replace(fuse([vit, vit], ["all"]), name="hydra")
    assert [name for name, _ in choose_networks([dense, hydra], None, each=True)] == [
        "vit-member0",
        "hydra-member0",
        "hydra-member1",
    ]
    assert choose_networks([hydra], None, joint=True) == [("hydra", hydra)]
    assert [name for name, _ in choose_networks([dense], Ensemble(LoraEnsemble(), 3), each=True)] == ["vit"]
    with pytest.raises(OptionError, match="hydra: has 2 members: train each with `members`, or all with `joint`"):
        choose_networks([hydra], None)
    with pytest.raises(OptionError, match="`joint`: vit has one member: leave `joint` out"):
        choose_networks([replace(vit, name="vit")], None, joint=True)


def test_which_samples(vit: Checkpoint, bert: Checkpoint, clip: Checkpoint) -> None:
    assert sample_kind([vit], Recipe()) == "image"
    assert sample_kind([bert], Recipe()) == "text"
    assert sample_kind([clip], Recipe(loss="contrastive")) == "pair"
    with pytest.raises(OptionError, match="members of different kinds: image-classification, text-classification"):
        sample_kind([vit, bert], Recipe())
