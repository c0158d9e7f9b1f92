"""Several labels a sample: what a Hydra answers, its losses, and every command on the way."""

import csv
import io
import json
from dataclasses import replace
from math import log, prod
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from scipy.stats import beta
from torch.testing import assert_close

import hydractl
import hydractl.auto
from hydractl.checkpoint.calibration import Calibration
from hydractl.errors import DataError, OptionError
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.labels import mean_logits
from hydractl.tasks.task import Answers
from tests.cli.conftest import LABELS, save_bert, save_vit
from tests.factories import SEVERAL_LABELS, images, some_labels

TASK = find_task("multi-label-image-classification")


def logit(p: float) -> float:
    return log(p / (1 - p))


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


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ViT, and tables of images with lists of labels, and with columns of 0 and 1."""
    folder = tmp_path_factory.mktemp("labels")
    save_vit(folder / "vit", **SEVERAL_LABELS)
    draw = np.random.default_rng(0)
    table = images(draw, 60)
    tags = some_labels(draw, table)
    table = table.add_column("tags", tags)
    for name in LABELS:
        table = table.add_column(name, [int(name in row) for row in tags])
    table.select(range(40)).to_parquet(folder / "train.parquet")
    table.select(range(40, 60)).to_parquet(folder / "test.parquet")
    return folder


def test_every_step_from_lists_to_exports(shared: Path, tmp_path: Path) -> None:
    vit, train, test = shared / "vit", f"{shared}/train.parquet", f"{shared}/test.parquet"
    tuned = hydractl.finetune([vit], train_data=train, val_split=8, label_column="tags", steps=2).networks[0]
    assert tuned.validation is not None and tuned.validation.nll > 0
    members = [hydractl.prune(tuned.checkpoint, method="magnitude", budget=2).checkpoint]
    members += [hydractl.prune(tuned.checkpoint, method="random", budget=3, seed=1).checkpoint]
    taylor = {"method": "taylor", "id_data": train, "label_column": "tags"}
    members += [hydractl.prune(tuned.checkpoint, budget=3, **taylor).checkpoint]
    fused = hydractl.fuse(members)
    ready = hydractl.calibrate(fused, id_data=train, label_column="cat,dog,owl", output=tmp_path / "hydra")
    model = hydractl.load(tmp_path / "hydra", dtype=torch.float64)
    images = datasets.load_dataset("parquet", data_files=test, split="train")["image"]
    inputs = model.preprocessor(images)
    output = model(**inputs)
    assert_close(output.probabilities, (output.member_logits / model.temperature).sigmoid().mean(0), rtol=0, atol=1e-10)
    assert (
        len(model.calibration.thresholds or ()) == 3
        and ready.checkpoint.calibration.to_json() == model.calibration.to_json()
    )
    found = hydractl.predict(model, test)
    assert found.typicality is not None and found.profile is not None
    p = output.probabilities.numpy()
    wanted = [
        tuple(name for name, one, t in zip(LABELS, row, model.calibration.thresholds, strict=True) if one >= t)
        for row in p
    ]
    assert list(found.labels) == wanted
    shown = [one if one >= t else 1 - one for one, t in zip(p[0], model.calibration.thresholds, strict=True)]
    assert found.msp[0] == pytest.approx(prod(shown))
    assert json.loads(json.dumps(found.to_json()))["predictions"][0]["label"] == list(wanted[0])
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert rows[0]["label"] == ", ".join(wanted[0]) and float(rows[0]["p(dog)"]) == pytest.approx(p[0, 1])
    hydractl.export(ready.checkpoint, output=tmp_path / "folder")
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "folder", dtype=torch.float64)
    assert_close(theirs(**inputs).logits.sigmoid(), output.probabilities, rtol=0, atol=1e-10)
    labels = torch.randint(2, (20, 3))
    loss = TASK.losses(output.member_logits / model.temperature, labels).mean()
    assert_close(theirs(**inputs, labels=labels).loss, loss.float(), rtol=0, atol=1e-5)


def test_pipelines_of_transformers_answer_the_same(tmp_path: Path) -> None:
    save_bert(tmp_path / "bert", **SEVERAL_LABELS)
    texts = ["a good film", "owl owl bad"]
    wanted = transformers.pipeline("text-classification", str(tmp_path / "bert"), top_k=None)(texts)
    hydractl.export(tmp_path / "bert", format="hf", output=tmp_path / "hf")
    hydractl.export(tmp_path / "bert", output=tmp_path / "exported", format="hf", as_hydra=True)
    predicted = hydractl.predict(tmp_path / "bert", text=texts)
    for folder in ("hf", "exported"):
        found = transformers.pipeline("text-classification", str(tmp_path / folder), top_k=None)(texts)
        for ours, theirs, p in zip(found, wanted, predicted.probabilities, strict=True):
            assert [one["label"] for one in ours] == [one["label"] for one in theirs]
            assert [one["score"] for one in ours] == pytest.approx([one["score"] for one in theirs], abs=1e-6)
            assert sorted(p, reverse=True) == pytest.approx([one["score"] for one in theirs], abs=1e-6)


def test_a_new_classifier_takes_the_task_of_its_data(shared: Path, tmp_path: Path) -> None:
    plain = save_vit(tmp_path / "plain")
    options = {"label_column": "tags", "steps": 1, "settings": {"new_classifier": "zeros"}}
    tuned = hydractl.finetune([plain], train_data=f"{shared}/train.parquet", **options).networks[0].checkpoint
    assert (tuned.spec.task, tuned.labels) == ("multi-label-image-classification", LABELS)
    hydractl.export(tuned, format="hf", output=tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["problem_type"] == SEVERAL_LABELS["problem_type"]


def test_each_label_keeps_the_precision_that_is_asked_for(shared: Path, tmp_path: Path) -> None:
    given: Any = {"id_data": f"{shared}/train.parquet", "label_column": "tags"}
    made = hydractl.calibrate(shared / "vit", **given, accuracy="20%", output=tmp_path / "m")
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
    shown = hydractl.predict(tmp_path / "m", f"{shared}/test.parquet")
    assert shown.sure is None and "each is right 20 % of the time" in shown.promise.meaning
    measured = hydractl.evaluate(tmp_path / "m", **given, bootstrap=0, allow_leak=True).models["m"]["id"]
    assert measured["precision"] >= 0.2 and 0 <= measured["recall"] <= 1
    with pytest.raises(DataError, match="'cat' .*`accuracy`"):
        hydractl.calibrate(shared / "vit", **given, accuracy="99%")


def test_what_needs_one_class_is_refused_with_a_remedy(shared: Path, tmp_path: Path) -> None:
    vit, data = shared / "vit", f"{shared}/train.parquet"
    tags = {"label_column": "tags"}
    for wanted, call in (
        ("leave it out", lambda: hydractl.calibrate(vit, id_data=data, accuracy="90%", by_class=True, **tags)),
        ("leave it out", lambda: hydractl.calibrate(vit, id_data=data, sets="90%", **tags)),
        ("leave it out", lambda: hydractl.calibrate(vit, id_data=data, ood_score="msp", **tags)),
        ("choose layers", lambda: hydractl.evaluate(vit, id_data=data, ood_score="energy", **tags)),
        ("leave it out", lambda: hydractl.evaluate(vit, id_data=data, save_logits=tmp_path / "saved", **tags)),
    ):
        with pytest.raises(OptionError, match=wanted):
            call()
    with pytest.raises(DataError, match="one class .*label_column"):
        hydractl.evaluate(vit, id_data=data, label_column="cat")
    with pytest.raises(DataError, match="several .*label_column"):
        hydractl.evaluate(save_vit(tmp_path / "one"), id_data=data, **tags)
