"""What `build` does where there are training data: exposure, teachers, one member, and a trunk that stays one."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from PIL import Image

from hydractl.families.load import read_checkpoint
from tests.cli.conftest import Command, save_vit
from tests.steps.test_build import ARGUMENTS, here

__all__ = ["here"]


@pytest.fixture
def more(here: Path) -> Path:
    """Images to train on that are not among those to choose by."""
    shutil.copytree(here / "pets", here / "more")
    for image in (here / "more").rglob("*.png"):
        Image.open(image).rotate(90).save(image)
    return here / "more"


def test_members_learn_to_be_unsure_of_the_ood_data_that_chose_them_and_of_no_other(
    hydractl: Command, here: Path
) -> None:
    def training(*options: str) -> str:
        asked = (*ARGUMENTS, "--train-data", "pets", "--search", "shortlist", *options, "--dry-run")
        search, *rest = hydractl(*asked).out.splitlines()
        assert "--search shortlist " in search
        return next(line for line in rest if line.startswith("hydractl finetune "))

    sets = [word for word in shlex.split(training("--set", "epochs=1")) if "OOD" in word]
    named = (("near/noise", "OOD_1"), ("far/grey", "OOD_2"))
    assert sets == [f"{group}=$({name})%{part}/3" for part in (1, 2) for group, name in named]
    assert "--outlier-data" not in training("--set", "epochs=1", "--set", "outlier_weight=0")
    endless = hydractl(*ARGUMENTS, "--train-data", "pets", "--dry-run")
    assert endless.code == 2 and "does not say how long to train" in endless.err


def test_one_member_trains_too(hydractl: Command, here: Path, more: Path) -> None:
    data = ["--id-data", "pets", "--train-data", more, "--set", "steps=1", "--device", "cpu", "--members", "1"]
    result = hydractl("build", "vit", *data, "--budgets=1", "-o", "built", "--quiet")
    assert result.code == 0, result.err
    assert read_checkpoint(str(here / "built" / "hydra.safetensors")).members == 1


def test_members_learn_what_a_teacher_says(hydractl: Command, here: Path, more: Path) -> None:
    save_vit(here / "teacher", seed=1)
    training = ["--train-data", more, "--set", "steps=1", "--teacher", "vit", "--teacher", "teacher"]
    built = hydractl(*ARGUMENTS, *training, "--quiet")
    assert built.code == 0, built.err
    member = read_checkpoint(str(here / "built" / "work" / "selected-member0.safetensors"))
    assert len(member.provenance["options"]["fingerprints"]["teacher"]) == 2
    makefile = (here / "built" / "Makefile").read_text()
    assert "\nTEACHER_2 ?= $(HERE)../teacher\n" in makefile and '--teacher "$(TEACHER_1)"' in makefile


@pytest.mark.slow
def test_training_keeps_to_the_cost_and_needs_no_ood_data(hydractl: Command, here: Path, more: Path) -> None:
    data = ["--id-data", "pets", "--train-data", more, "--set", "steps=2", "--device", "cpu"]
    result = hydractl("build", "vit", *data, "--budgets=25%,50%", "--budget-macs=1.6x", "-o", "built", "--quiet")
    assert result.code == 0, result.err
    hydra = read_checkpoint(str(here / "built" / "hydra.safetensors"))
    assert hydra.members == 3
    assert hydra.heads["vision"][0] == ((0, 1, 2, 3),) * 3
    entries = json.loads((here / "built" / "report" / "report.json").read_text())["models"]
    assert entries["hydra"]["cost"]["multiply_adds"] <= 1.6 * entries["network"]["cost"]["multiply_adds"]
    assert "--joint" in (here / "built" / "Makefile").read_text()


@pytest.mark.parametrize("bounds", [("--trunks=1",), ("--trunks=0", "--budget-params=1.2x"), ("--budget-macs=2x",)])
def test_what_members_share_stays_shared_where_that_is_asked_for(
    hydractl: Command, here: Path, bounds: tuple[str, ...]
) -> None:
    def training(*options: str) -> list[str]:
        asked = ("build", "vit", "--id-data", "pets", "--train-data", "pets", "--set=steps=1", "-o", "built", *options)
        lines = hydractl(*asked, "--dry-run").out.splitlines()
        return [line for line in lines if line.startswith(("hydractl finetune ", "hydractl fuse "))]

    together = training(*bounds)
    assert len(together) == 1 and " --joint " in together[0]
    apart = training()
    assert len(apart) == 2 and "--joint" not in apart[0]
