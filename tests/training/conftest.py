"""Tiny networks and samples to train on."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.open import open_pairs
from hydractl.data.samples import Samples
from hydractl.families.load import read_checkpoint
from hydractl.training.batches import Workplace, training_process
from hydractl.training.conditions import Training
from hydractl.training.loop import Tuned
from hydractl.training.recipe import Recipe
from hydractl.training.request import Execution
from hydractl.training.trainer import fine_tune_checkpoint
from hydractl.training.trainset import TrainingData
from tests.cli.conftest import LABELS, WORDS, save_bert, save_clip, save_vit

Fit = Callable[..., Tuned]  # of a network and how it is trained

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


def unlabelled(samples: Samples) -> Samples:
    return replace(samples, labels=None, label_names=None)


def samples_for(checkpoint: Checkpoint, count: int) -> Samples:
    """Samples of the kind a classifier takes."""
    return text_samples(count) if checkpoint.spec.modality == "text" else image_samples(count)


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return read_checkpoint(save_vit(tmp_path_factory.mktemp("models") / "vit"))


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return read_checkpoint(save_bert(tmp_path_factory.mktemp("models") / "bert"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def fit(folder: Path) -> Iterator[Fit]:
    """Trains a network in the test's folder, or in one within."""
    torch.set_num_threads(1)
    with training_process(torch.device("cpu")) as accelerator:

        def run(network: Checkpoint, training: Training, within: str = "", on_step: Any = None, **how: Any) -> Tuned:
            place = Workplace(folder / within, accelerator, Execution(**how))
            return fine_tune_checkpoint(network, training, place, on_step)

        yield run


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return read_checkpoint(save_clip(tmp_path_factory.mktemp("models") / "clip"))


@pytest.fixture(scope="session")
def pair_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten images with captions in the folder's metadata."""
    folder = tmp_path_factory.mktemp("pairs")
    random = np.random.default_rng(0)
    rows = ["file_name,caption"]
    for i in range(10):
        Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{i}.png")
        rows.append(f"{i}.png,{' '.join(random.choice(list('abcdefgh'), 1 + i % 4))}")
    (folder / "metadata.csv").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="session")
def pairs(pair_folder: Path) -> TrainingData:
    return TrainingData(open_pairs(str(pair_folder)))
