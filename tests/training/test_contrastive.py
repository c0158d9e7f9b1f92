"""Contrastive fine-tuning of a CLIP: the gradient of transformers' own loss, however the step is divided."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import CLIPModel

from hydractl.checkpoint.contents import Checkpoint
from hydractl.families.load import read_checkpoint
from hydractl.inference import load_checkpoint
from hydractl.model.assembly import from_checkpoint
from hydractl.training.conditions import Training
from hydractl.training.losses import contrastive_loss, model_embeddings
from hydractl.training.order import sample_at
from hydractl.training.trainset import TrainingData, open_pairs
from tests.conftest import build_reference
from tests.training.conftest import RECIPE, Fit
from tests.training.test_trainer import float64, require_equal_by_hand, weights

LIT = replace(RECIPE, loss="contrastive", train_only=("text",), batch=4, steps=3, lr=(0.5,))


def test_equals_a_hand_written_loop_with_transformers_own_loss(
    clip: Checkpoint, pairs: TrainingData, folder: Path, fit: Fit
) -> None:
    recipe = replace(LIT, train_only=("text", "logit_scale"))
    ours = fit(float64(clip), Training(pairs, recipe), batch_size=2).checkpoint
    model = CLIPModel.from_pretrained(clip.name).double().train()
    trained = [p for name, p in model.named_parameters() if name.startswith("text") or name == "logit_scale"]
    preprocess = load_checkpoint(clip).preprocessor
    assert preprocess is not None

    def loss_of_step(step: int) -> torch.Tensor:
        chosen = [pairs.train.inputs[sample_at(0, place, 10)] for place in range(4 * step, 4 * step + 4)]
        pixels = preprocess([image for image, _ in chosen])["pixel_values"].double()
        return model(pixel_values=pixels, return_loss=True, **preprocess([text for _, text in chosen])).loss

    require_equal_by_hand(ours, model, loss_of_step, folder, torch.optim.SGD(trained, momentum=0.9), (0.5,) * 3)
    assert not torch.equal(weights(ours)["logit_scale"], weights(float64(clip))["logit_scale"])


@pytest.mark.slow
def test_two_processes_equal_one_with_twice_the_batch(clip: Checkpoint, pair_folder: Path, tmp_path: Path) -> None:
    options = "--recipe clip-lit --set batch=6 --set warmup=1 --set lr=0.01 --steps 4 --device cpu --quiet"
    train = ["-m", "hydractl", "finetune", clip.name, "--train-data", str(pair_folder), *options.split()]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for start, batch_size, output in (([], "6", "one"), (launch, "3", "two")):
        command = [sys.executable, *start, *train, "--batch-size", batch_size, "-o", output]
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
    for shard, numbers in enumerate((range(6), range(6, 10))):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as archive:
            for number in numbers:
                archive.add(pair_folder / f"{number}.png", f"{number:03}.png")
                text = captions[f"{number}.png"].encode()
                entry = tarfile.TarInfo(f"{number:03}.txt")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))
    from_shards = open_pairs(str(tmp_path))
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


def test_the_loss_of_a_siglip_is_that_of_transformers(tmp_path: Path) -> None:
    reference = build_reference("siglip-zero-shot")
    model = from_checkpoint(read_checkpoint(reference.save(tmp_path)))
    inputs = reference.inputs | {"input_ids": reference.inputs["input_ids"][: len(reference.inputs["pixel_values"])]}
    found = contrastive_loss(*model_embeddings(model, inputs), model.logit_scale, model.logit_bias)
    expected = reference.model(**inputs, return_loss=True).loss
    assert_close(found, expected, rtol=0, atol=1e-10)
