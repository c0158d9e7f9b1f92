"""ViLU: the forward as published written out, its loss, kill and resume, and what an evaluation makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.manifest import fingerprint
from hydractl.errors import DataError, OptionError
from hydractl.families.open import read_checkpoint
from hydractl.model.failure import ErrorPredictor
from hydractl.training import vilu
from hydractl.training.vilu import Answered, Run, train, weighted_loss
from tests.training.conftest import image_samples

CLASSES = ("a", "b c", "d")


def unit(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.nn.functional.normalize(torch.randn(*shape, dtype=torch.float64, generator=generator), dim=-1)


def test_the_forward_is_attention_and_an_mlp_as_published() -> None:
    images, classes, predicted = unit(6, 8), unit(4, 8), torch.tensor([0, 3, 1, 1, 2, 0])
    weights = vilu._start(8, 0, torch.float64)
    attention = torch.nn.MultiheadAttention(8, 1, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.cat([weights[f"attention.{part}"] for part in "qkv"]))
        attention.out_proj.weight.copy_(torch.eye(8))
    layers: list[torch.nn.Module] = []
    for n in range(3):
        linear = torch.nn.Linear(*reversed(weights[f"mlp.{n}.weight"].shape), dtype=torch.float64)
        linear.load_state_dict({part: weights[f"mlp.{n}.{part}"] for part in ("weight", "bias")})
        layers += [linear, torch.nn.ReLU()]
    weighted, _ = attention(images[:, None], classes.expand(6, -1, -1), classes.expand(6, -1, -1))
    expected = torch.nn.Sequential(*layers[:-1])(torch.cat([images, classes[predicted], weighted[:, 0]], -1))[:, 0]
    torch.testing.assert_close(ErrorPredictor(weights)(images, classes, predicted), expected, rtol=0, atol=1e-12)
    # q, k and v of one image, scores and means over 4 classes, and the layers.
    assert ErrorPredictor(weights).multiply_adds(4) == 3 * 64 + 2 * 4 * 8 + 24 * 512 + 512 * 512 + 512


def test_the_loss_by_hand() -> None:
    odds = torch.tensor([0.0, 2.0, -1.0], dtype=torch.float64)
    wrong = torch.tensor([True, False, True])
    p = 1 / (1 + np.exp(-odds.numpy()))
    expected = -(3 * np.log(p[0]) + np.log(1 - p[1]) + 3 * np.log(p[2])) / 3
    assert float(weighted_loss(odds, wrong, 3.0)) == pytest.approx(expected, abs=1e-12)


def run(folder: Path, resume: bool = False, **changed: Any) -> Run:
    folder.mkdir(exist_ok=True)
    return replace(Run(20, 0, folder, resume, 2, {"method": "vilu"}), **changed)


def test_a_run_that_was_killed_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    images, classes = unit(150, 8), unit(3, 8)
    answered = Answered(images, classes, torch.arange(150) % 3, images[:, 0] > 0.2)
    whole = train(answered, run(tmp_path / "whole"))
    left = ErrorPredictor(whole)(images, classes, answered.predicted)
    assert roc_auc_score(answered.wrong, left.numpy()) > 0.95
    told: list[float] = []

    def kill(loss: float) -> None:
        told.append(loss)
        if len(told) == 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(answered, run(tmp_path / "killed", on_epoch=kill))
    resumed = train(answered, run(tmp_path / "killed", resume=True, on_epoch=told.append))
    assert len(told) == 11 + 10  # from the state after ten epochs
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    with pytest.raises(OptionError, match="was made with"):
        train(answered, run(tmp_path / "killed", resume=True, conditions={"method": "vilu", "seed": 1}))


@pytest.fixture
def named(tmp_path: Path) -> str:
    """Image folders by the names of classes that the tiny tokenizer knows."""
    samples = image_samples(40)
    for place, (image, label) in enumerate(zip(samples.inputs, samples.labels, strict=True)):
        (tmp_path / "images" / CLASSES[label]).mkdir(parents=True, exist_ok=True)
        image.save(tmp_path / "images" / CLASSES[label] / f"{place}.png")
    return str(tmp_path / "images")


def test_from_training_to_evaluation(clip: Checkpoint, named: str, tmp_path: Path) -> None:
    path = tmp_path / "vilu"
    options = {"method": "vilu", "data": named, "template": "{label}", "epochs": 3}
    tuned = hydractl.finetune(clip, output=path, **options)
    assert tuned.networks[0].steps == 3
    assert read_checkpoint(path).attached is not None
    assert hydractl.finetune(clip, output=path, resume=True, **options).networks[0].output == path  # it is done
    with pytest.raises(OptionError, match="was made with"):
        hydractl.finetune(clip, output=path, resume=True, **{**options, "epochs": 4})
    again = hydractl.finetune(clip, **options).checkpoint
    assert fingerprint(again) == fingerprint(read_checkpoint(path))

    with pytest.raises(DataError, match="were used to make vilu"):
        hydractl.evaluate({"vilu": path}, id_data=named)
    asked = {
        "allow_leak": True,
        "id_data": named,
        "template": "{label}",
        "ood_data": [f"noise={named}"],
        "temperature": 2.0,
    }
    saved = tmp_path / "logits"
    found = hydractl.evaluate({"clip": clip, "vilu": path}, save_logits=saved, **asked).models
    assert found["vilu"]["score"] == "own confidence" and found["vilu"]["temperature"]["value"] == 1.0
    assert found["clip"]["id"]["accuracy"] == found["vilu"]["id"]["accuracy"]
    assert found["vilu"]["ood"]["noise"]["auroc"] == pytest.approx(0.5)  # the same images
    model = hydractl.load(path)
    model.set_classes(CLASSES, "{label}")
    assert model.errors is not None and model.class_embeddings is not None
    assert found["vilu"]["cost"]["parameters"] - found["clip"]["cost"]["parameters"] == sum(
        tensor.numel() for tensor in model.errors.weights.values()
    )
    images = [image_samples(40).inputs[place] for place in (3, 1)]
    said = hydractl.predict(path, images, classes=CLASSES, template="{label}")
    with torch.inference_mode():
        output = model(**model.preprocessor(images))
        expected = -model.errors(output.features[0], model.class_embeddings[0], output.logits.argmax(-1))
    assert said.confidence == pytest.approx(expected.numpy(), abs=1e-5)
    assert [row["confidence"] for row in said.rows()] == said.confidence.tolist()
    assert [line.split("\t")[-1] for line in said.lines()] == [f"{number:.4f}" for number in said.confidence]
    assert hydractl.predict(clip, images, classes=CLASSES, template="{label}").confidence is None
    for form in ("hf", "onnx", "torch-export", "peft"):
        with pytest.raises(OptionError, match="vilu has no place in another format: export the model that it was"):
            hydractl.export(path, format=form, output=tmp_path / "exported")
    read = hydractl.evaluate(f"predictions:{saved / 'vilu'}").models["vilu"]
    assert read["selective"] == found["vilu"]["selective"]


def test_what_does_not_go_together_is_refused(
    clip: Checkpoint, vit: Checkpoint, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OptionError, match="is no zero-shot model"):
        hydractl.finetune(vit, data=named, method="vilu")
    for option, value in (("recipe", "cifar100"), ("order_seed", 0), ("noise_seed", 0)):
        with pytest.raises(OptionError, match=f"`{option}` has no effect"):
            hydractl.finetune(clip, data=named, method="vilu", **{option: value})
    with pytest.raises(OptionError, match="takes a whole number"):
        hydractl.finetune(clip, data=named, method="vilu", epochs=1.5)
    with pytest.raises(OptionError, match="trains beside one model"):
        hydractl.finetune([clip, clip], data=named, method="vilu")
    one = tmp_path / "one"
    (one / "a").mkdir(parents=True)
    image_samples(1).inputs[0].save(one / "a" / "0.png")
    with pytest.raises(DataError, match="is right on all of it"):
        hydractl.finetune(clip, data=str(one), method="vilu")
