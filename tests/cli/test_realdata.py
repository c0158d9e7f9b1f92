"""The whole command on real images and texts, against transformers run by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import load_dataset
from transformers import (
    AutoImageProcessor,
    ViTForImageClassification,
)

from tests.cli.conftest import Command

pytestmark = [pytest.mark.realdata, pytest.mark.slow]
BATCH = 64


@pytest.fixture(scope="session")
def cifar_vit(data_folder: Path) -> Path:
    folder = data_folder.parent / "ckpt" / "vit_cifar10"
    if not folder.is_dir():
        pytest.skip(f"no real checkpoint at {folder}")
    return folder


@torch.no_grad()
def transformers_predictions(folder: Path, images: list[Any]) -> np.ndarray:
    """[N], from transformers' own model and processor."""
    model = ViTForImageClassification.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    batches = (images[start : start + BATCH] for start in range(0, len(images), BATCH))
    logits = [model(**processor(images=batch, return_tensors="pt")).logits for batch in batches]
    return torch.cat(logits).argmax(-1).numpy()


def test_images(hydractl: Command, data_folder: Path, cifar_vit: Path, tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        hydractl("prune", cifar_vit, "--method=random", "--budget=4", f"--seed={seed}", "-o", tmp_path / f"m{seed}")
    hydractl("fuse", *(tmp_path / f"m{seed}" for seed in (0, 1, 2)), "-o", tmp_path / "hydra")
    ood = {"textures": "ood_textures", "mnist": "ood_mnist", "fashion": "ood_fashion"}
    sets = [part for name, folder in ood.items() for part in ("--ood-data", f"far/{name}={data_folder / folder}")]
    id_data = f"{data_folder / 'cifar10'}:validation"
    whole = hydractl("evaluate", cifar_vit, "--id-data", id_data, "--json", "-")
    table = hydractl(
        "evaluate", cifar_vit, tmp_path / "hydra", "--id-data", id_data, *sets, "--limit=300", "--json", "-"
    )
    assert (whole.code, table.code, whole.err, table.err) == (0, 0, "", "")
    validation = load_dataset("parquet", data_files=str(data_folder / "cifar10" / "validation.parquet"), split="train")
    predictions = transformers_predictions(cifar_vit, list(validation["image"]))
    accuracy = (predictions == np.array(validation["label"])).mean()
    assert json.loads(whole.out)["models"]["vit_cifar10"]["id"]["accuracy"] == accuracy
    models = json.loads(table.out)["models"]
    for model in models.values():
        assert {name: entry["samples"] for name, entry in model["ood"].items()} == dict.fromkeys(ood, 300)
    assert models["hydra"]["cost"]["members"] == 3
    assert models["hydra"]["id"]["disagreement"] > 0
    # Removing 4 of 36 heads costs a few points; removing the wrong rows would leave a guess of one in ten.
    assert models["hydra"]["id"]["accuracy"] > models["vit_cifar10"]["id"]["accuracy"] - 0.1
