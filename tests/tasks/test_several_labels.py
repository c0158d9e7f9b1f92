"""Several labels a sample: what a Hydra answers, its losses, and every command on the way."""

import json
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from scipy.special import logit
from scipy.stats import beta
from torch.testing import assert_close

import hydractl
import hydractl.auto
from hydractl.checkpoint.calibration import Calibration
from hydractl.errors import DataError
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.labels import mean_logits
from hydractl.tasks.task import Answers
from tests.cli.conftest import LABELS, save_vit
from tests.factories import SEVERAL_LABELS

TASK = find_task("multi-label-image-classification")


def test_worked_out_by_hand() -> None:
    members = torch.tensor([[[logit(0.9), logit(0.2)]], [[logit(0.5), logit(0.4)]]], dtype=torch.float64)
    found = Answers(task=TASK, member_logits=members.numpy(), classes=("cat", "dog"))
    assert found.labels == [("cat",)]
    assert found.probabilities[0].tolist() == pytest.approx([0.7, 0.3])
    assert found.msp.item() == pytest.approx(0.7 * 0.7)
    assert mean_logits(members, 1.0)[0].tolist() == pytest.approx([logit(0.7), logit(0.3)])

    def entropy(*shares: float) -> float:
        return -sum(p * log(p) + (1 - p) * log(1 - p) for p in shares)

    assert found.entropy.item() == pytest.approx(entropy(0.7, 0.3))
    expected = (entropy(0.9, 0.2) + entropy(0.5, 0.4)) / 2
    assert found.mutual_information.item() == pytest.approx(entropy(0.7, 0.3) - expected)
    assert replace(found, calibration=Calibration(thresholds=(0.8, 0.25))).labels == [("dog",)]
    cooled = Answers(task=TASK, member_logits=members[:1].numpy(), calibration=Calibration(2.0))
    assert cooled.probabilities[0, 0].item() == pytest.approx(1 / (1 + (1 / 9) ** 0.5))
    assert "cat" in repr(found) and "<td>cat</td>" in found._repr_html_()


def test_sure_members_leave_the_logits_finite() -> None:
    far = torch.tensor([[[800.0, -800.0]], [[900.0, 900.0]]])
    assert mean_logits(far, 1.0)[0, 0].item() == pytest.approx(800 + log(2), rel=1e-6)
    assert mean_logits(far, 1.0)[0, 1].item() == pytest.approx(0, abs=1e-6)


def test_losses_are_means_over_labels() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 4, generator=generator)
    labels, taught = torch.randint(2, (3, 4), generator=generator), torch.rand(3, 4, generator=generator)
    each = [F.binary_cross_entropy_with_logits(one, labels.float(), reduction="none").mean(-1) for one in logits]
    assert_close(TASK.losses(logits, labels), torch.cat(each))
    smooth = F.binary_cross_entropy_with_logits(logits[0], labels * 0.8 + 0.1, reduction="none").mean(-1)
    assert_close(TASK.losses(logits, labels, 0.2)[:3], smooth)
    assert_close(TASK.taught_losses(logits, taught).sum(-1)[1], F.binary_cross_entropy_with_logits(logits[1], taught,
                 reduction="none").mean(-1))  # fmt: skip
    assert_close(TASK.outlier_losses(torch.zeros(1, 2, 3)), torch.full((1, 2), log(2)))


def test_a_tuned_hydra_is_a_folder_of_transformers(labelled: Path, tmp_path: Path) -> None:
    train = {"id_data": f"{labelled}/train.parquet", "label_column": "tags"}
    learning = {"train_data": train["id_data"], "label_column": "tags", "val_split": 8, "steps": 2}
    tuned = hydractl.finetune([labelled / "vit"], **learning).networks[0]
    assert tuned.validation is not None and tuned.validation.nll > 0
    members = [hydractl.prune(tuned.checkpoint, method="random", budget=3, seed=1).checkpoint]
    members += [hydractl.prune(tuned.checkpoint, method="taylor", budget=3, **train).checkpoint]
    columns = {**train, "label_column": "cat,dog,owl"}
    ready = hydractl.calibrate(hydractl.fuse(members), **columns, output=tmp_path / "hydra").checkpoint
    assert ready.calibration.thresholds is not None and len(ready.calibration.thresholds) == 3
    model = hydractl.load(tmp_path / "hydra", dtype=torch.float64)
    inputs = model.preprocessor(datasets.load_dataset("parquet", data_files=train["id_data"], split="train")["image"])
    output = model(**inputs)
    logits = output.member_logits / model.temperature
    hydractl.export(ready, output=tmp_path / "folder")
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "folder", dtype=torch.float64)
    for found in (output.probabilities, theirs(**inputs).logits.sigmoid()):
        assert_close(found, logits.sigmoid().mean(0), rtol=0, atol=1e-10)
    labels = torch.randint(2, (100, 3))
    loss = TASK.losses(logits, labels).mean()
    assert_close(theirs(**inputs, labels=labels).loss, loss.float(), rtol=0, atol=1e-5)


def test_a_new_classifier_takes_the_task_of_its_data(labelled: Path, tmp_path: Path) -> None:
    plain = save_vit(tmp_path / "plain")
    options = {"label_column": "tags", "steps": 1, "settings": {"new_classifier": "zeros"}}
    tuned = hydractl.finetune([plain], train_data=f"{labelled}/train.parquet", **options).networks[0].checkpoint
    assert (tuned.spec.task, tuned.labels) == ("multi-label-image-classification", LABELS)
    hydractl.export(tuned, format="hf", output=tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["problem_type"] == SEVERAL_LABELS["problem_type"]


def test_each_label_keeps_the_precision_that_is_asked_for(labelled: Path, tmp_path: Path) -> None:
    given: Any = {"id_data": f"{labelled}/train.parquet", "label_column": "tags"}
    made = hydractl.calibrate(labelled / "vit", **given, accuracy="20%", output=tmp_path / "m")
    assert "20 % of the answers with each label are right" in str(made)
    table = datasets.load_dataset("parquet", data_files=given["id_data"], split="train")
    model = hydractl.load(tmp_path / "m", dtype=torch.float64)
    p = model(**model.preprocessor(table["image"])).probabilities.numpy()
    for at, (name, least) in enumerate(zip(LABELS, model.calibration.thresholds, strict=True)):
        there = np.array([name in own for own in table["tags"]])

        def bound(level: float, scores: np.ndarray = p[:, at], there: np.ndarray = there) -> float:
            answered = scores >= level - 1e-6
            right = int((answered & there).sum())
            return float(beta.ppf(0.05, right, answered.sum() - right + 1)) if right else 0.0

        assert bound(least) >= 0.2 and all(bound(level) < 0.2 for level in p[:, at] if level < least - 1e-6)
    assert ": 20 % of the answers with each label are right" in str(hydractl.inspect(tmp_path / "m"))
    shown = hydractl.predict(tmp_path / "m", f"{labelled}/test.parquet")
    assert shown.sure is None and "each is right 20 % of the time" in shown.promise.meaning
    measured = hydractl.evaluate(tmp_path / "m", **given, bootstrap=0, allow_leak=True).models["m"]["id"]
    assert measured["precision"] >= 0.2 and 0 <= measured["recall"] <= 1
    with pytest.raises(DataError, match="'cat' .*`accuracy`"):
        hydractl.calibrate(labelled / "vit", **given, accuracy="99%")


def test_columns_of_labels_do_not_fit_every_model(labelled: Path, tmp_path: Path) -> None:
    data = f"{labelled}/train.parquet"
    with pytest.raises(DataError, match="one class .*label_column"):
        hydractl.evaluate(labelled / "vit", id_data=data, label_column="cat")
    with pytest.raises(DataError, match="several .*label_column"):
        hydractl.evaluate(save_vit(tmp_path / "one"), id_data=data, label_column="tags")
