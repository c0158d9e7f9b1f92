"""Outliers are no other samples, are remembered, and are unsure after training."""

from __future__ import annotations

from pathlib import Path

import pytest

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import DataError, OptionError
from hydractl.training.request import TrainingSources
from hydractl.training.trainset import open_training_data
from tests.cli.conftest import save_images, save_vit


def test_outliers_are_unsure_after_it_and_an_evaluation_on_them_is_refused(tmp_path: Path) -> None:
    save_vit(tmp_path / "vit")
    save_images(tmp_path / "pets")
    save_images(tmp_path / "else", seed=5)
    save_images(tmp_path / "third", seed=6)
    asked = {"train_data": f"{tmp_path}/pets", "steps": 40, "settings": {"lr": 3e-3}, "device": "cpu"}
    plain = hydractl.finetune(tmp_path / "vit", **asked).checkpoint
    exposed = hydractl.finetune(tmp_path / "vit", outlier_data=f"{tmp_path}/else", **asked).checkpoint

    photographs = [str(path) for path in sorted((tmp_path / "else").rglob("*.png"))]

    def sureness(checkpoint: Checkpoint) -> float:
        return float(hydractl.predict(checkpoint, photographs).msp.mean())

    assert sureness(exposed) < sureness(plain) - 0.05
    with pytest.raises(DataError, match="as outliers"):
        hydractl.evaluate(exposed, id_data=f"{tmp_path}/third", ood_data=f"{tmp_path}/else")


def test_outliers_that_are_trained_on_and_outliers_of_pairs_are_refused(tmp_path: Path) -> None:
    save_vit(tmp_path / "vit")
    save_images(tmp_path / "pets")
    with pytest.raises(DataError, match="outliers are training samples"):
        hydractl.finetune(tmp_path / "vit", train_data=f"{tmp_path}/pets", outlier_data=f"{tmp_path}/pets", steps=1)
    with pytest.raises(OptionError, match="outlier_data"):
        open_training_data("pair", f"{tmp_path}/pets", TrainingSources(outlier_data=f"{tmp_path}/pets"))
