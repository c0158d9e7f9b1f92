"""Networks and data that several files of tests share."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hydractl
from tests.cli.conftest import LABELS
from tests.factories import SEVERAL, save_tagger, sentences


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ViT, and images with lists of labels and columns of 0 and 1; it is right about half of them."""
    folder = tmp_path_factory.mktemp("labels")
    SEVERAL.save(folder / "vit")
    table = SEVERAL.labelled(folder / "vit", np.random.default_rng(0), 160).rename_column("kinds", "tags")
    for name in LABELS:
        table = table.add_column(name, [int(name in row) for row in table["tags"]])
    table.select(range(100)).to_parquet(folder / "train.parquet")
    table.select(range(100, 160)).to_parquet(folder / "test.parquet")
    return folder


@pytest.fixture(scope="session")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger before and after a little training, and tables of its sentences."""
    folder = tmp_path_factory.mktemp("words")
    table = sentences(130)
    table.select(range(60)).to_parquet(folder / "train.parquet")
    table.select(range(60, 130)).to_parquet(folder / "test.parquet")
    given: Any = {"train_data": f"{folder}/train.parquet", "steps": 25, "settings": {"lr": 3e-3, "batch": 8}}
    hydractl.finetune([save_tagger(folder / "bert")], output=folder / "tuned", val_split=8, **given)
    return folder
