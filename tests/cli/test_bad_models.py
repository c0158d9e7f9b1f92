"""A table of damaged and unsuitable models: each is one line that names the file, the finding and a way out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hydractl.checkpoint.disk import WEIGHTS_NAME
from tests.cli.conftest import Command

Damage = Callable[[Path], None]


def config(**changes: object) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def truncate(folder: Path) -> None:
    path = folder / WEIGHTS_NAME
    path.write_bytes(path.read_bytes()[:-100])


def to_pickle(folder: Path) -> None:
    torch.save(load_file(folder / WEIGHTS_NAME), folder / "pytorch_model.bin")
    (folder / WEIGHTS_NAME).unlink()


def disguised_pickle(folder: Path) -> None:
    torch.save({}, folder / WEIGHTS_NAME)


CASES: dict[str, tuple[Damage, str]] = {
    "truncated": (truncate, "model.safetensors: not a readable safetensors file"),
    "pickle": (to_pickle, "is a pickle, which can run code when opened: convert it once"),
    "disguised pickle": (disguised_pickle, "is a pickle"),
    "no weights": (lambda f: (f / WEIGHTS_NAME).unlink(), f"no {WEIGHTS_NAME} in this folder"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json: is missing"),
    "other family": (
        config(model_type="resnet"),
        "model_type 'resnet' is not supported: it has no attention heads",
    ),
    "base model": (config(architectures=["ViTModel"]), "is a ViTModel, not a classifier"),
}


@pytest.mark.parametrize("case", CASES)
def test_damaged_folders(hydractl: Command, vit: Path, tmp_path: Path, case: str) -> None:
    damage, message = CASES[case]
    folder = tmp_path / "model"
    shutil.copytree(vit, folder)
    damage(folder)
    result = hydractl("inspect", folder)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"error: {folder}")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_a_weights_file_without_its_config(hydractl: Command, vit: Path) -> None:
    (vit / "config.json").rename(vit / "elsewhere.json")
    result = hydractl("inspect", vit / WEIGHTS_NAME)
    (vit / "elsewhere.json").rename(vit / "config.json")
    assert result.code == 1
    assert "was not written by hydractl: put the model's config.json beside it" in result.err
