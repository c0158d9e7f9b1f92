"""What is trained, each for itself, and the files that it becomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError
from hydractl.surgery.fuse import fuse
from hydractl.training.ensembles import Ensemble
from hydractl.training.jobs import Job, choose_ensemble, choose_jobs, sample_kind
from hydractl.training.recipe import Recipe


def test_which_ensemble() -> None:
    assert choose_ensemble(None, "each") is None
    assert choose_ensemble("lora-ensemble", "3") == Ensemble("lora-ensemble", 3, rank=4, alpha=None)
    assert choose_ensemble("lora-ensemble", 3, rank=2, alpha=4.0) == Ensemble("lora-ensemble", 3, rank=2, alpha=4.0)
    with pytest.raises(OptionError, match="`members` 3: a number is for `method`"):
        choose_ensemble(None, 3)
    with pytest.raises(OptionError, match="`method` batch-ensemble: say how many members"):
        choose_ensemble("batch-ensemble", "each")
    with pytest.raises(OptionError, match="`joint` trains the members of a Hydra together"):
        choose_ensemble(None, "each", joint=True)


def test_which_networks(vit: Checkpoint) -> None:
    dense = replace(vit, name="models/vit.safetensors")
    hydra = replace(fuse([vit, vit], ["all"]), name="hydra")
    assert [job.name for job in choose_jobs([dense, hydra], None, each=True)] == [
        "vit-member0",
        "hydra-member0",
        "hydra-member1",
    ]
    assert choose_jobs([hydra], None, joint=True) == [Job("hydra", hydra)]
    assert [job.name for job in choose_jobs([dense], Ensemble("lora-ensemble", 3), each=True)] == ["vit"]
    with pytest.raises(OptionError, match="hydra: has 2 members: train each with `members`, or all with `joint`"):
        choose_jobs([hydra], None)
    with pytest.raises(OptionError, match="`joint`: vit has one member: leave `joint` out"):
        choose_jobs([replace(vit, name="vit")], None, joint=True)


def test_which_samples(vit: Checkpoint, bert: Checkpoint, clip: Checkpoint) -> None:
    assert sample_kind([Job("a", vit)], Recipe()) == "image"
    assert sample_kind([Job("a", bert)], Recipe()) == "text"
    assert sample_kind([Job("a", clip)], Recipe(loss="contrastive")) == "pair"
    with pytest.raises(OptionError, match="members of different kinds: image-classification, text-classification"):
        sample_kind([Job("a", vit), Job("b", bert)], Recipe())
