"""Distillation and outlier exposure equal a hand-written loop over transformers' networks, whatever the passes."""

import json
import math
import os
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import datasets
import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close
from transformers import BertForSequenceClassification, CLIPModel, PreTrainedModel, ViTForImageClassification

import hydractl
from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.data.open import open_pairs, open_samples
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.data.samples import Samples
from hydractl.errors import DataError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.inference import load_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.training.conditions import Training
from hydractl.training.losses import Teachers, contrastive_loss, model_embeddings
from hydractl.training.request import Seeds, TrainingSources
from hydractl.training.trainset import TrainingData, open_training_data, outlier_seeds, sample_at
from tests.cli.conftest import HYDRACTL, TORCHRUN, save_bert, save_images, save_vit
from tests.conftest import build_reference
from tests.damage import edit_json
from tests.training.conftest import RECIPE, Fit, image_samples, text_samples, unlabelled
from tests.training.test_trainer import float64, weights

FAMILIES = {
    "vit": (image_samples, ViTForImageClassification, save_vit),
    "bert": (text_samples, BertForSequenceClassification, save_bert),
}


def require_equal_by_hand(
    ours: Checkpoint,
    model: PreTrainedModel,
    loss_of_step: Callable[[int], torch.Tensor],
    folder: Path,
    optimizer: torch.optim.Optimizer | None = None,
    rates: Sequence[float] = (0.05,) * 4,
    clip: float = math.inf,
) -> None:
    """Trains transformers' own model by a plain loop and requires the same weights."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), momentum=0.9)
    for step, rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss_of_step(step).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder / "theirs")
    expected = weights(read_checkpoint(folder / "theirs"))
    for name, tensor in weights(ours).items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-10, msg=name)


def in_float64(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("family", "batch_size", "weight", "exposed"),
    [
        *(("vit", 2, 0.7, False), ("vit", None, 1.0, False), ("bert", 4, 0.3, False)),
        *(("vit", None, 0.0, True), ("bert", 4, 0.0, True), ("vit", 2, 0.7, True), ("vit", 2, 0.0, False)),
    ],
)
def test_equals_a_hand_written_loop(
    family: str, batch_size: int | None, weight: float, exposed: bool,
    request: pytest.FixtureRequest, folder: Path, fit: Fit,
) -> None:  # fmt: skip
    copytree(request.getfixturevalue(family).name, folder / "model")
    edit_json(folder / "model" / "config.json", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    checkpoint, (make, kind, save) = read_checkpoint(folder / "model"), FAMILIES[family]
    train, outliers = make(20), unlabelled(make(7))
    others = [float64(read_checkpoint(save(folder / f"teacher{seed}", seed=seed))) for seed in (1, 2)]
    others[1] = replace(others[1], calibration=Calibration(1.7))
    recipe = replace(RECIPE, weight_decay=0.1, clip=0.05, schedule="linear", warmup=1)
    recipe = replace(recipe, teacher_weight=weight, label_smoothing=0.1, outlier_weight=0.7, outlier_share=0.5)
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

    plain = {name for name, _ in model.named_parameters() if name.endswith(".bias") or "norm" in name.lower()}
    decaying, rest = ([p for name, p in model.named_parameters() if (name in plain) == one] for one in (False, True))
    optimizer = torch.optim.SGD([{"params": decaying, "weight_decay": 0.1}, {"params": rest}], momentum=0.9)
    rates = [0, 0.05, 0.05 * 2 / 3, 0.05 / 3]
    require_equal_by_hand(ours.checkpoint, model, loss_of_step, folder, optimizer, rates, clip=0.05)


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
    for seed, (model, data) in enumerate((("vit", "pets"), ("other", "more"))):
        save_vit(tmp_path / model, seed=seed)
        save_images(tmp_path / data, seed=seed)
    return tmp_path


def test_teachers_and_outliers_that_do_not_fit_are_refused(place: Path, clip: Checkpoint) -> None:
    copytree("other", "brighter")
    edit_json(Path("brighter/preprocessor_config.json"), image_mean=[0.1, 0.2, 0.3])
    for error, message, given in (
        (OptionError, "preprocesses", {"teacher": "brighter"}),
        (OptionError, "zero-shot", {"teacher": clip.name}),
        (DataError, "are training samples", {"outlier_data": "pets"}),
    ):
        with pytest.raises(error, match=message):
            hydractl.finetune("vit", train_data="pets", steps=1, **given)
    with pytest.raises(OptionError, match="outlier_data"):
        open_training_data("pair", "pets", TrainingSources(outlier_data="pets"))


def test_outliers_and_what_a_teacher_was_trained_on_are_no_data_to_measure_on(place: Path) -> None:
    asked = {"train_data": "pets", "steps": 1, "settings": {"lr": 1e-3}}
    teacher = hydractl.finetune("other", **{**asked, "train_data": "more"}, output="teacher").checkpoint
    plain, taught, exposed = (
        hydractl.finetune("vit", **asked, **more).checkpoint
        for more in ({}, {"teacher": teacher}, {"outlier_data": "more"})
    )
    assert len({identity(plain), identity(taught), identity(exposed)}) == 3
    with pytest.raises(DataError, match="as training data"):
        hydractl.evaluate(taught, id_data="more")
    with pytest.raises(DataError, match="more: .*as outliers"):
        hydractl.evaluate(exposed, id_data="pets", ood_data="more")


LIT = replace(RECIPE, loss="contrastive", train_only=("text",), batch=4, steps=3, lr=(0.5,))


def test_equals_a_hand_written_loop_with_transformers_own_loss(
    clip: Checkpoint, pairs: TrainingData, folder: Path, fit: Fit
) -> None:
    recipe = replace(LIT, train_only=("text", "logit_scale"))
    ours = fit(float64(clip), Training(pairs, recipe), batch_size=2).checkpoint
    model = CLIPModel.from_pretrained(clip.name).double().train()
    trained = [p for name, p in model.named_parameters() if name.startswith("text") or name == "logit_scale"]
    preprocess = load_checkpoint(clip).preprocessor

    def loss_of_step(step: int) -> torch.Tensor:
        chosen = [pairs.train.inputs[sample_at(0, place, 10)] for place in range(4 * step, 4 * step + 4)]
        pixels = preprocess([image for image, _ in chosen])["pixel_values"].double()
        return model(pixel_values=pixels, return_loss=True, **preprocess([text for _, text in chosen])).loss

    require_equal_by_hand(ours, model, loss_of_step, folder, torch.optim.SGD(trained, momentum=0.9), (0.5,) * 3)
    assert not torch.equal(weights(ours)["logit_scale"], weights(float64(clip))["logit_scale"])


@pytest.mark.slow
def test_two_processes_equal_one_with_twice_the_batch(clip: Checkpoint, pair_folder: Path, tmp_path: Path) -> None:
    options = "--recipe clip-lit --set batch=6 --set warmup=1 --set lr=0.01 --steps 4 --device cpu --quiet"
    train = ["finetune", clip.name, "--train-data", str(pair_folder), *options.split()]
    for start, batch_size, output in ((HYDRACTL, "6", "one"), (TORCHRUN, "3", "two")):
        command = [*start, *train, "--batch-size", batch_size, "-o", output]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout) == (0, f"{output}\n"), done.stderr
    one, two = (weights(read_checkpoint(tmp_path / name)) for name in ("one", "two"))
    for name, tensor in one.items():
        # Adam divides a gradient by its size: where that is rounding, as of the key's bias, so is the step.
        if not name.endswith("attention.k.bias"):
            torch.testing.assert_close(tensor, two[name], rtol=0, atol=1e-4, msg=name)
    logs = [(tmp_path / f"{name}.training" / "log.jsonl").read_text().splitlines() for name in ("one", "two")]
    losses = [[json.loads(line)["loss"] for line in log] for log in logs]
    # Each image is told from the texts of both processes: among three it would be log 3 at first, not log 6.
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][0] > 1.5


def test_pairs_from_webdataset_shards(clip: Checkpoint, pair_folder: Path, tmp_path: Path) -> None:
    captions = dict(line.split(",") for line in (pair_folder / "metadata.csv").read_text().splitlines()[1:])
    (tmp_path / "shards").mkdir()
    for shard, numbers in enumerate((range(6), range(6, 10))):
        with tarfile.open(tmp_path / "shards" / f"{shard}.tar", "w") as archive:
            for number in numbers:
                archive.add(pair_folder / f"{number}.png", f"{number:03}.png")
                (tmp_path / "text").write_text(captions[f"{number}.png"])
                archive.add(tmp_path / "text", f"{number:03}.txt")
    from_shards = open_pairs(str(tmp_path / "shards"))
    from_folder = open_pairs(str(pair_folder))
    assert set(from_shards.content_hashes()) == set(from_folder.content_hashes())
    assert [text for _, text in from_shards.inputs[:2]] == [captions["0.png"], captions["1.png"]]


def test_pairs_as_values(pair_folder: Path) -> None:
    from_folder = open_pairs(str(pair_folder))
    values = [(image, text) for image, text in from_folder.inputs]
    rows = {"image": [image for image, _ in values], "caption": [text for _, text in values]}
    for data in (values, datasets.Dataset.from_dict(rows)):
        pairs = open_pairs(data)
        assert np.array_equal(pairs.content_hashes(), from_folder.content_hashes())
        assert pairs.inputs[3][1] == from_folder.inputs[3][1]
    # The images are recognised without their texts.
    images = open_samples(str(pair_folder), "image").subset(np.arange(1, 4))
    assert from_folder.subset(np.arange(1, 4)).sketch() == images.sketch()


def test_the_loss_of_a_siglip_is_that_of_transformers(tmp_path: Path) -> None:
    reference = build_reference("siglip-zero-shot")
    model = from_checkpoint(read_checkpoint(reference.save(tmp_path)))
    inputs = reference.inputs | {"input_ids": reference.inputs["input_ids"][: len(reference.inputs["pixel_values"])]}
    found = contrastive_loss(*model_embeddings(model, inputs), model.logit_scale, model.logit_bias)
    expected = reference.model(**inputs, return_loss=True).loss
    assert_close(found, expected, rtol=0, atol=1e-10)
