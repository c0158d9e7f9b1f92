"""Distillation equals a hand-written loop over transformers' networks; labels that it does not need are not read."""

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
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.data.samples import Samples
from hydractl.errors import DataError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.training.conditions import Training
from hydractl.training.losses import Teachers
from hydractl.training.order import sample_at
from hydractl.training.request import Seeds
from hydractl.training.trainer import fine_tune_checkpoint
from hydractl.training.trainset import TrainingData
from tests.cli.conftest import save_bert, save_images, save_vit
from tests.training.conftest import RECIPE, at, image_samples, text_samples
from tests.training.test_outliers import unlabelled, without_dropout
from tests.training.test_trainer import float64, require_equal_by_hand, weights

CPU = torch.device("cpu")


@pytest.mark.parametrize(("family", "batch_size", "weight"), [("vit", 2, 0.7), ("vit", None, 1.0), ("bert", 4, 0.3)])
def test_equals_a_hand_written_loop_over_transformers_own_models(
    family: str,
    batch_size: int | None,
    weight: float,
    request: pytest.FixtureRequest,
    folder: Path,
    accelerator: Accelerator,
) -> None:
    checkpoint = without_dropout(request.getfixturevalue(family), folder / "model")
    make, kind, save = (image_samples, ViTForImageClassification, save_vit) if family == "vit" else (
        text_samples, BertForSequenceClassification, save_bert)  # fmt: skip
    others = [float64(read_checkpoint(save(folder / f"teacher{seed}", seed=seed))) for seed in (1, 2)]
    others[1] = replace(others[1], temperature=1.7)
    train = make(20)
    recipe = replace(RECIPE, teacher_weight=weight, label_smoothing=0.1)
    training = Training(TrainingData(train), recipe, Seeds(3), teachers=Teachers.load(others, CPU))
    ours = fine_tune_checkpoint(float64(checkpoint), training, at(folder, accelerator, batch_size=batch_size))

    model, *teachers = (kind.from_pretrained(one.name).double().eval() for one in (checkpoint, *others))
    preprocess = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, family)

    def loss_of_step(step: int) -> torch.Tensor:
        positions = [sample_at(3, place, 20) for place in range(6 * step, 6 * step + 6)]
        tensors = preprocess([train.inputs[i] for i in positions])
        tensors = {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}
        with torch.no_grad():
            first, second = (teacher(**tensors).logits for teacher in teachers)
            wanted = (first.softmax(-1) + (second / 1.7).softmax(-1)) / 2
        logits, labels = model(**tensors).logits, torch.from_numpy(train.labels[positions])
        of_labels = cross_entropy(logits, labels, label_smoothing=0.1)
        return weight * cross_entropy(logits, wanted) + (1 - weight) * of_labels

    require_equal_by_hand(ours.checkpoint, model, loss_of_step, folder)


@pytest.mark.parametrize("known", ["none", "others"])
def test_labels_that_have_no_weight_are_not_read(
    vit: Checkpoint, folder: Path, accelerator: Accelerator, known: str
) -> None:
    teachers = Teachers.load([vit], CPU)

    def taught(samples: Samples) -> dict[str, torch.Tensor]:
        training = Training(TrainingData(samples), RECIPE, Seeds(3), teachers=teachers)
        return weights(fine_tune_checkpoint(vit, training, at(folder, accelerator)).checkpoint)

    samples = image_samples(20)
    unknown = replace(samples, label_names=("a", "b", "c")) if known == "others" else unlabelled(samples)
    expected = taught(samples)
    for name, tensor in taught(unknown).items():
        assert torch.equal(tensor, expected[name])


def test_labels_that_have_some_weight_are(vit: Checkpoint, folder: Path, accelerator: Accelerator) -> None:
    recipe, teachers = replace(RECIPE, teacher_weight=0.5), Teachers.load([vit], CPU)
    training = Training(TrainingData(unlabelled(image_samples(20))), recipe, teachers=teachers)
    with pytest.raises(DataError, match="holds no labels"):
        fine_tune_checkpoint(vit, training, at(folder, accelerator))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("vit", "other", "third")):
        save_vit(tmp_path / name, seed=seed)
    for seed, name in enumerate(("pets", "more")):
        save_images(tmp_path / name, seed=seed)
    return tmp_path


def test_teachers_that_do_not_fit_are_refused(place: Path, clip: Checkpoint) -> None:
    copytree("other", "renamed")
    config = json.loads(Path("renamed/config.json").read_text())
    names = {"id2label": {"0": "x", "1": "y", "2": "z"}, "label2id": {"x": 0, "y": 1, "z": 2}}
    Path("renamed/config.json").write_text(json.dumps(config | names))
    copytree("other", "brighter")
    processing = json.loads(Path("brighter/preprocessor_config.json").read_text())
    Path("brighter/preprocessor_config.json").write_text(json.dumps(processing | {"image_mean": [0.1, 0.2, 0.3]}))
    refusals = {"renamed": "other classes", "brighter": "preprocesses", clip.name: "zero-shot"}
    for teacher, message in refusals.items():
        with pytest.raises(OptionError, match=message):
            hydractl.finetune("vit", train_data="pets", teacher=teacher, steps=1)


def test_a_teacher_without_weight_is_not_asked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"lr": 1e-3, "teacher_weight": 0}
    alone = hydractl.finetune("vit", train_data="pets", steps=1, settings=settings, output="alone")
    monkeypatch.delattr(Teachers, "load")
    hydractl.finetune("vit", train_data="pets", teacher="other", steps=1, settings=settings, output="taught")
    assert alone.networks[0].output == Path("alone")
    assert Path("alone").read_bytes() == Path("taught").read_bytes()


def test_what_a_teacher_was_trained_on_is_no_data_to_measure_on(place: Path) -> None:
    settings = {"lr": 1e-3}
    teacher = hydractl.finetune("other", train_data="more", steps=1, settings=settings, output="teacher").checkpoint
    taught = hydractl.finetune("vit", train_data="pets", teacher=teacher, steps=1, settings=settings).checkpoint
    with pytest.raises(DataError, match="as training data"):
        hydractl.evaluate(taught, id_data="more")
