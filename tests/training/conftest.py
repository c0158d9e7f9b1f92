"""Tiny networks and samples to train on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.sources import Samples
from hydractl.families.open import read_checkpoint
from hydractl.training.recipe import Recipe
from tests.cli.conftest import LABELS, WORDS, save_bert, save_vit

RECIPE = Recipe(optimizer="sgd", lr=(0.05,), schedule="constant", steps=4, batch=6)


def image_samples(count: int, seed: int = 0) -> Samples:
    """Random 8x8 images whose brightness gives the label away."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, len(LABELS), count)
    pixels = [random.integers(80 * label, 80 * label + 80, (8, 8, 3), dtype=np.uint8) for label in labels]
    return Samples("random", "image", [Image.fromarray(one) for one in pixels], labels, LABELS)


def text_samples(count: int, seed: int = 0) -> Samples:
    """Random texts of uneven length; the first word gives the label away."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, len(LABELS), count)
    words = [" ".join([WORDS[6 + label], *random.choice(["a", "owl"], random.integers(1, 8))]) for label in labels]
    return Samples("words", "text", words, labels, LABELS)


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return read_checkpoint(save_vit(tmp_path_factory.mktemp("models") / "vit"))


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return read_checkpoint(save_bert(tmp_path_factory.mktemp("models") / "bert"))


@pytest.fixture(scope="session")
def accelerator() -> Accelerator:
    torch.set_num_threads(1)
    return Accelerator(cpu=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"
