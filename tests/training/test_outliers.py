"""Outlier exposure equals a hand-written loop, whatever the passes; its samples are no others' and are remembered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from transformers import BertForSequenceClassification, ViTForImageClassification

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.open import SampleStream
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.data.samples import Samples
from hydractl.errors import DataError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.training.conditions import Training
from hydractl.training.order import outlier_seeds, sample_at
from hydractl.training.request import Seeds, TrainingSources
from hydractl.training.trainer import fine_tune_checkpoint
from hydractl.training.trainset import TrainingData, open_training_data
from tests.cli.conftest import save_images, save_vit
from tests.training.conftest import RECIPE, at, image_samples, text_samples
from tests.training.test_trainer import float64, require_equal_by_hand

EXPOSED = replace(RECIPE, outlier_weight=0.7, outlier_share=0.5)


def without_dropout(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    copytree(checkpoint.name, folder)
    config = json.loads((folder / "config.json").read_text())
    dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps({**config, **dropouts}))
    return read_checkpoint(folder)


def unlabelled(samples: Samples) -> Samples:
    return replace(samples, labels=None, label_names=None)


@pytest.mark.parametrize(("family", "batch_size"), [("vit", 2), ("vit", None), ("bert", 4)])
def test_equals_a_hand_written_loop_over_transformers_own_model(
    family: str, batch_size: int | None, request: pytest.FixtureRequest, folder: Path, accelerator: Accelerator
) -> None:
    checkpoint = without_dropout(request.getfixturevalue(family), folder / "model")
    make, kind = (image_samples, ViTForImageClassification) if family == "vit" else (
        text_samples, BertForSequenceClassification)  # fmt: skip
    data = TrainingData(make(20), outliers=unlabelled(make(7)))
    ours = fine_tune_checkpoint(
        float64(checkpoint), Training(data, EXPOSED, Seeds(3)), at(folder, accelerator, batch_size=batch_size)
    )

    model = kind.from_pretrained(checkpoint.name).double().eval()
    preprocess = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, family)

    def logits(samples: Samples, positions: list[int]) -> torch.Tensor:
        tensors = preprocess([samples.inputs[i] for i in positions])
        return model(**{n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}).logits

    assert data.outliers is not None and isinstance(data.train, Samples) and data.train.labels is not None
    order = outlier_seeds(Seeds(3)).order

    def loss_of_step(step: int) -> torch.Tensor:
        positions = [sample_at(3, place, 20) for place in range(6 * step, 6 * step + 6)]
        beside = [sample_at(order, place, 7) for place in range(3 * step, 3 * step + 3)]
        labels = torch.from_numpy(data.train.labels[positions])
        unsure = logits(data.outliers, beside)
        uniform = torch.full_like(unsure, 1 / unsure.shape[-1])
        return cross_entropy(logits(data.train, positions), labels) + 0.7 * cross_entropy(unsure, uniform)

    require_equal_by_hand(ours.checkpoint, model, loss_of_step, folder)


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
    # A stream is compared as it is read: what comes first is trained on.
    sources = TrainingSources(streaming=True, outlier_data=f"{tmp_path}/pets:[5:6]")
    streamed = open_training_data("image", f"{tmp_path}/pets", sources)
    assert isinstance(streamed.train, SampleStream)
    blocks = streamed.train.blocks(3)
    assert len(next(blocks)) == 3
    with pytest.raises(DataError, match="1 of 1 outliers are training samples"):
        next(blocks)
    with pytest.raises(OptionError, match="outlier_data"):
        open_training_data("pair", f"{tmp_path}/pets", TrainingSources(outlier_data=f"{tmp_path}/pets"))
