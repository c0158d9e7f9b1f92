"""Several labels a sample: what a Hydra answers, its losses, numbers, and every command on the way."""

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
from scipy.special import expit, logit
from scipy.stats import beta
from sklearn import metrics
from sklearn.metrics import f1_score, log_loss, precision_recall_fscore_support
from torch.testing import assert_close

import hydractl
import hydractl.auto
from hydractl.checkpoint.calibration import Calibration
from hydractl.errors import DataError
from hydractl.tasks import labels as label_sets
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.labels import label_set_metrics, label_set_replicates, mean_logits, tabulate_label_sets
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


@pytest.fixture
def answered() -> tuple[np.ndarray, np.ndarray]:
    """Logits `[2,80,4]`, rounded so that some are equal, and labels that they know something of; one is never there."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, (80, 4))
    labels[:, 3] = 0
    logits = (2 * labels - 1 + 2 * draw.normal(size=(2, 80, 4))).round(1)
    return logits, labels


def test_equals_scikit_learn(answered: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = answered
    thresholds = (0.4, 0.5, 0.6, 0.7)
    found = label_set_metrics(tabulate_label_sets(logits, labels, 2.0, thresholds))
    p = expit(logits / 2).mean(0)
    chosen = p >= thresholds
    assert found.micro_f1 == pytest.approx(f1_score(labels, chosen, average="micro"))
    assert found.precision == pytest.approx(metrics.precision_score(labels, chosen, average="micro"))
    assert found.recall == pytest.approx(metrics.recall_score(labels, chosen, average="micro"))
    assert found.macro_f1 == pytest.approx(f1_score(labels, chosen, average="macro", zero_division=0))
    assert found.mean_ap == pytest.approx(metrics.average_precision_score(labels[:, :3], p[:, :3], average="macro"))
    assert found.label_auroc == pytest.approx(metrics.roc_auc_score(labels[:, :3], p[:, :3], average="macro"))
    assert found.nll == pytest.approx(np.mean([log_loss(labels[:, i], p[:, i], labels=[0, 1]) for i in range(4)]))
    assert found.brier == pytest.approx(np.square(p - labels).mean())
    assert found.accuracy == (chosen == labels).all(1).mean()
    places = np.clip(np.ceil(p * 15) - 1, 0, 14)
    gaps = [abs((labels - p)[places == one].sum()) for one in range(15)]
    assert found.ece == pytest.approx(sum(gaps) / p.size)


def test_numbers_of_each_label_equal_scikit_learn(answered: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = answered
    flags = np.arange(80) < 20
    table = tabulate_label_sets(logits, labels)
    found = TASK.class_numbers(table, "abcd", flags)
    assert found is not None
    precision, recall, _, samples = precision_recall_fscore_support(labels, table.prediction, zero_division=0)
    assert [one.samples for one in found.values()] == samples.tolist()
    assert [one.precision for one in found.values()] == pytest.approx(precision)
    assert [one.recall for one in found.values()][:3] == pytest.approx(recall[:3]) and found["d"].recall is None
    for at, name in enumerate("abc"):
        there = labels[:, at] == 1
        assert found[name].confidence == pytest.approx(table.probabilities[there, at].mean())
        assert found[name].flagged == pytest.approx(flags[there].mean())
        assert found[name].answers is None


def test_per_sample_quantities() -> None:
    logits = np.log([[[9.0, 1 / 4]], [[1.0, 2 / 3]]])  # probabilities 0.9, 0.2 and 0.5, 0.4
    table = tabulate_label_sets(logits, None)
    assert table.prediction.tolist() == [[1, 0]] and table.msp[0] == pytest.approx(0.7 * 0.7)
    assert table.doubt[0] == pytest.approx(np.log(-2 * np.log(0.7)))
    sure = np.array([[[9.0, -5.0], [-20.0, 30.0]]])
    judged = find_task("multi-label-text-classification").judge(sure / 0.01, None, None)
    for doubt in (tabulate_label_sets(sure, None, 0.01).doubt, -judged.confidence):
        assert doubt == pytest.approx([-500, -2000])  # where the answers' probabilities are exactly 1
    assert table.disagreement.tolist() == [0.0]
    assert tabulate_label_sets(logits, None, thresholds=(0.6, 0.5)).disagreement.tolist() == [1.0]


def test_intervals_are_seeded_and_hold_every_number(answered: tuple[np.ndarray, np.ndarray]) -> None:
    table = tabulate_label_sets(*answered)
    found = label_set_replicates(table, 50, seed=1)
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(vars(label_set_metrics(table)), 50)
    for name, value in vars(label_set_metrics(table)).items():
        low, high = found[name].min(), found[name].max()
        assert low < high and low <= value <= high
    assert (label_set_replicates(table, 50, seed=1)["mean_ap"] == found["mean_ap"]).all()


def test_no_temperature_and_no_threshold_is_better(answered: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = answered
    fitted = label_sets.fit_label_sets(logits, labels)

    def nll(temperature: float) -> float:
        return label_set_metrics(tabulate_label_sets(logits, labels, temperature)).nll

    assert fitted.nll_before == pytest.approx(nll(1.0)) and fitted.nll_after == pytest.approx(nll(fitted.temperature))
    assert min(map(nll, np.geomspace(0.05, 50, 100))) >= fitted.nll_after
    p = tabulate_label_sets(logits, labels, fitted.temperature).probabilities
    assert fitted.thresholds[3] == 0.5  # no sample has it
    for scores, own, threshold in zip(p.T[:3], labels.T, fitted.thresholds, strict=False):
        best = max(f1_score(own, scores >= one) for one in scores)
        assert f1_score(own, scores >= threshold) == pytest.approx(best)
