"""A table of damaged and unsuitable models: each is one line that names the file, the finding and a way out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hydractl.checkpoint.tensors import WEIGHTS_NAME
from tests.cli.conftest import LABELS, Command, save_vit

Damage = Callable[[Path], None]


def config(**changes: object) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def weights(change: Callable[[dict[str, torch.Tensor]], None]) -> Damage:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS_NAME)
        change(tensors)
        save_file(tensors, folder / WEIGHTS_NAME, {"format": "pt"})

    return damage


def query(tensors: dict[str, torch.Tensor]) -> str:
    return next(name for name in tensors if name.endswith(("query.weight", "q_proj.weight")))


def spoil(tensors: dict[str, torch.Tensor]) -> None:
    tensors[query(tensors)][3, 2] = float("nan")


def misshape(tensors: dict[str, torch.Tensor]) -> None:
    tensors[query(tensors)] = torch.zeros(16, 15)


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
    "not safetensors": (lambda f: (f / WEIGHTS_NAME).write_text("x"), "not a readable safetensors file"),
    "empty file": (lambda f: (f / WEIGHTS_NAME).write_text(""), "not a readable safetensors file"),
    "pickle": (to_pickle, "is a pickle, which can run code when opened: convert it once"),
    "disguised pickle": (disguised_pickle, "is a pickle"),
    "no weights": (lambda f: (f / WEIGHTS_NAME).unlink(), f"no {WEIGHTS_NAME} in this folder"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json: is missing"),
    "config no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json: is not readable JSON"),
    "config no object": (
        lambda f: (f / "config.json").write_text("[]"),
        "config.json: is a list of 0, should be an object",
    ),
    "other family": (
        config(model_type="resnet"),
        "model_type 'resnet' is not supported: it has no attention heads",
    ),
    "base model": (config(architectures=["ViTModel"]), "is a ViTModel, not a classifier"),
    "missing tensor": (weights(lambda t: t.pop(query(t))), "query"),
    "extra tensor": (weights(lambda t: t.update(surprise=torch.ones(1))), "surprise"),
    "misshapen tensor": (weights(misshape), "has shape [16, 15], expected [16, 16]"),
    "NaN": (weights(spoil), "holds NaN or infinite numbers"),
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


def test_nothing_there(hydractl: Command) -> None:
    result = hydractl("inspect", "no-such-model")
    assert result.code == 1
    assert result.err.startswith("error: no-such-model: no such file or folder")


def test_a_weights_file_without_its_config(hydractl: Command, vit: Path) -> None:
    (vit / "config.json").rename(vit / "elsewhere.json")
    result = hydractl("inspect", vit / WEIGHTS_NAME)
    (vit / "elsewhere.json").rename(vit / "config.json")
    assert result.code == 1
    assert "was not written by hydractl: put the model's config.json beside it" in result.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 1}, "layers is 1, but 2 in"),
        ({"intermediate_size": 32}, "mlp_width is 32, but 24 in"),
        ({"id2label": {str(i): label for i, label in enumerate(reversed(LABELS))}}, "labels is ('owl', 'dog', 'cat')"),
    ],
)
def test_members_that_do_not_agree(
    hydractl: Command, vit: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    other = save_vit(tmp_path / "other", **change)
    result = hydractl("fuse", vit, other, "-o", tmp_path / "hydra")
    assert result.code == 1
    assert message in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "hydra").exists()


def test_members_with_other_preprocessing(hydractl: Command, vit: Path, tmp_path: Path) -> None:
    other = save_vit(tmp_path / "other", seed=1)
    path = other / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"image_mean": [0.4, 0.4, 0.4]}))
    result = hydractl("fuse", vit, other, "-o", tmp_path / "hydra")
    assert result.code == 1
    assert "its preprocessing (preprocessor_config.json) differs" in result.err


def test_members_of_other_families(hydractl: Command, vit: Path, bert: Path, tmp_path: Path) -> None:
    result = hydractl("fuse", vit, bert, "-o", tmp_path / "hydra")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "family is bert, but vit in" in result.err
