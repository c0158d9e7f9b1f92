"""Teachers: labels that distillation does not need are not read, and what does not fit is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
import torch

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.samples import Samples
from hydractl.errors import DataError, OptionError
from hydractl.training.conditions import Training
from hydractl.training.losses import Teachers
from hydractl.training.request import Seeds
from hydractl.training.trainset import TrainingData
from tests.cli.conftest import save_images, save_vit
from tests.damage import edit_json
from tests.training.conftest import RECIPE, Fit, image_samples, unlabelled
from tests.training.test_trainer import weights

CPU = torch.device("cpu")


@pytest.mark.parametrize("known", ["none", "others"])
def test_labels_that_have_no_weight_are_not_read(vit: Checkpoint, fit: Fit, known: str) -> None:
    teachers = Teachers.load([vit], CPU)

    def taught(samples: Samples) -> dict[str, torch.Tensor]:
        training = Training(TrainingData(samples), RECIPE, Seeds(3), teachers=teachers)
        return weights(fit(vit, training).checkpoint)

    samples = image_samples(20)
    unknown = replace(samples, label_names=("a", "b", "c")) if known == "others" else unlabelled(samples)
    expected = taught(samples)
    for name, tensor in taught(unknown).items():
        assert torch.equal(tensor, expected[name])


def test_labels_that_have_some_weight_are(vit: Checkpoint, fit: Fit) -> None:
    recipe, teachers = replace(RECIPE, teacher_weight=0.5), Teachers.load([vit], CPU)
    training = Training(TrainingData(unlabelled(image_samples(20))), recipe, teachers=teachers)
    with pytest.raises(DataError, match="holds no labels"):
        fit(vit, training)


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
    names = {"id2label": {"0": "x", "1": "y", "2": "z"}, "label2id": {"x": 0, "y": 1, "z": 2}}
    edit_json(Path("renamed/config.json"), **names)
    copytree("other", "brighter")
    edit_json(Path("brighter/preprocessor_config.json"), image_mean=[0.1, 0.2, 0.3])
    refusals = {"renamed": "other classes", "brighter": "preprocesses", clip.name: "zero-shot"}
    for teacher, message in refusals.items():
        with pytest.raises(OptionError, match=message):
            hydractl.finetune("vit", train_data="pets", teacher=teacher, steps=1)


def test_what_a_teacher_was_trained_on_is_no_data_to_measure_on(place: Path) -> None:
    settings = {"lr": 1e-3}
    teacher = hydractl.finetune("other", train_data="more", steps=1, settings=settings, output="teacher").checkpoint
    taught = hydractl.finetune("vit", train_data="pets", teacher=teacher, steps=1, settings=settings).checkpoint
    with pytest.raises(DataError, match="as training data"):
        hydractl.evaluate(taught, id_data="more")
