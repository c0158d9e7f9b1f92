"""Distillation and outlier exposure equal a hand-written loop over transformers' networks, whatever the passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import BertForSequenceClassification, ViTForImageClassification

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.families.load import read_checkpoint
from hydractl.training.conditions import Training
from hydractl.training.losses import Teachers
from hydractl.training.order import outlier_seeds, sample_at
from hydractl.training.request import Seeds
from hydractl.training.trainset import TrainingData
from tests.cli.conftest import save_bert, save_vit
from tests.damage import edit_json
from tests.training.conftest import RECIPE, Fit, image_samples, text_samples, unlabelled
from tests.training.test_trainer import float64, in_float64, require_equal_by_hand

FAMILIES = {
    "vit": (image_samples, ViTForImageClassification, save_vit),
    "bert": (text_samples, BertForSequenceClassification, save_bert),
}


def without_dropout(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    copytree(checkpoint.name, folder)
    edit_json(folder / "config.json", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return read_checkpoint(folder)


@pytest.mark.parametrize(
    ("family", "batch_size", "weight", "exposed"),
    [
        *(("vit", 2, 0.7, False), ("vit", None, 1.0, False), ("bert", 4, 0.3, False)),
        *(("vit", None, 0.0, True), ("bert", 4, 0.0, True), ("vit", 2, 0.7, True)),
    ],
)
def test_equals_a_hand_written_loop(
    family: str, batch_size: int | None, weight: float, exposed: bool,
    request: pytest.FixtureRequest, folder: Path, fit: Fit,
) -> None:  # fmt: skip
    checkpoint = without_dropout(request.getfixturevalue(family), folder / "model")
    make, kind, save = FAMILIES[family]
    train, outliers = make(20), unlabelled(make(7))
    others = [float64(read_checkpoint(save(folder / f"teacher{seed}", seed=seed))) for seed in (1, 2)]
    others[1] = replace(others[1], temperature=1.7)
    recipe = replace(RECIPE, teacher_weight=weight, label_smoothing=0.1, outlier_weight=0.7, outlier_share=0.5)
    data = TrainingData(train, outliers=outliers if exposed else None)
    known = Teachers.load(others, torch.device("cpu")) if weight else None
    ours = fit(float64(checkpoint), Training(data, recipe, Seeds(3), teachers=known), batch_size=batch_size)

    model, *teachers = (kind.from_pretrained(one.name).double().eval() for one in (checkpoint, *others))
    preprocess = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, family)
    order = outlier_seeds(Seeds(3)).order

    def loss_of_step(step: int) -> torch.Tensor:
        positions = [sample_at(3, place, 20) for place in range(6 * step, 6 * step + 6)]
        tensors = in_float64(preprocess([train.inputs[i] for i in positions]))
        logits = model(**tensors).logits
        loss = cross_entropy(logits, torch.from_numpy(train.labels[positions]), label_smoothing=0.1)
        if weight:
            with torch.no_grad():
                first, second = (teacher(**tensors).logits for teacher in teachers)
                wanted = (first.softmax(-1) + (second / 1.7).softmax(-1)) / 2
            loss = weight * cross_entropy(logits, wanted) + (1 - weight) * loss
        if exposed:
            beside = [sample_at(order, place, 7) for place in range(3 * step, 3 * step + 3)]
            unsure = model(**in_float64(preprocess([outliers.inputs[i] for i in beside]))).logits
            loss = loss + 0.7 * cross_entropy(unsure, torch.full_like(unsure, 1 / unsure.shape[-1]))
        return loss

    require_equal_by_hand(ours.checkpoint, model, loss_of_step, folder)
