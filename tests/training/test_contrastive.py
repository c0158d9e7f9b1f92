"""Contrastive fine-tuning of a CLIP: the gradient of transformers' own loss, however the step is divided."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPTokenizer

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.spec import parse_data_spec
from hydractl.errors import OptionError
from hydractl.families.open import read_checkpoint
from hydractl.inference import load_checkpoint
from hydractl.training.batches import Machine
from hydractl.training.data import TrainingData
from hydractl.training.pairs import open_pairs
from hydractl.training.published import RECIPES
from hydractl.training.recipe import Recipe
from hydractl.training.run import fine_tune_checkpoint
from hydractl.training.stream import sample_at
from tests.conftest import SIZES
from tests.training.conftest import RECIPE
from tests.training.test_run import float64, weights

LIT = replace(RECIPE, loss="contrastive", train_only=("text",), batch=4, steps=3, lr=(0.5,))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    text = {**SIZES, "vocab_size": 40, "max_position_embeddings": 12, "eos_token_id": 1, "bos_token_id": 0}
    vision = {**SIZES, "image_size": 8, "patch_size": 4}
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)).save_pretrained(folder)
    size = {"height": 8, "width": 8}
    CLIPImageProcessor(size=size, crop_size=size).save_pretrained(folder)
    vocabulary = {word: i for i, word in enumerate(("<s>", "</s>", *(f"{letter}</w>" for letter in "abcdefgh")))}
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=[], bos_token="<s>", eos_token="</s>", unk_token="</s>")
    tokenizer.model_max_length = 12
    tokenizer.save_pretrained(folder)
    return read_checkpoint(folder)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    folder = tmp_path_factory.mktemp("pairs")
    random = np.random.default_rng(0)
    rows = ["file_name,caption"]
    for i in range(10):
        Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{i}.png")
        rows.append(f"{i}.png,{' '.join(random.choice(list('abcdefgh'), 1 + i % 4))}")
    (folder / "metadata.csv").write_text("\n".join(rows))
    return TrainingData(open_pairs(parse_data_spec(str(folder))))


def train(clip: Checkpoint, pairs: TrainingData, folder: Path, accelerator: Accelerator, recipe: Recipe = LIT,
          batch_size: int | None = None) -> Checkpoint:  # fmt: skip
    machine = Machine(folder, batch_size=batch_size)
    return fine_tune_checkpoint(clip, pairs, recipe, 0, machine, accelerator).outcome.checkpoint


def test_equals_a_hand_written_loop_with_transformers_own_loss(
    clip: Checkpoint, pairs: TrainingData, folder: Path, accelerator: Accelerator
) -> None:
    ours = train(
        float64(clip), pairs, folder, accelerator, replace(LIT, train_only=("text", "logit_scale")), batch_size=2
    )
    model = CLIPModel.from_pretrained(clip.name).double().train()
    trained = [p for name, p in model.named_parameters() if name.startswith("text") or name == "logit_scale"]
    optimizer = torch.optim.SGD(trained, lr=0.5, momentum=0.9)
    preprocess = load_checkpoint(clip).preprocessor
    assert preprocess is not None
    for step in range(3):
        chosen = [pairs.train.inputs[sample_at(0, place, 10)] for place in range(4 * step, 4 * step + 4)]
        pixels = preprocess([image for image, _ in chosen])["pixel_values"].double()
        text = preprocess([text for _, text in chosen])
        model(pixel_values=pixels, return_loss=True, **text).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder / "theirs")
    expected = weights(read_checkpoint(folder / "theirs"))
    for name, tensor in weights(ours).items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-9, msg=name)
    assert not torch.equal(weights(ours)["logit_scale"], weights(float64(clip))["logit_scale"])


def test_the_locked_tower_stays_bit_for_bit(
    clip: Checkpoint, pairs: TrainingData, folder: Path, accelerator: Accelerator
) -> None:
    validated = TrainingData(pairs.train, pairs.train)
    recipe = replace(RECIPES["clip-lit"], batch=5, steps=4, epochs=0, warmup=1, lr=(1e-2,))
    trained = weights(train(clip, validated, folder, accelerator, recipe))
    for name, before in weights(clip).items():
        assert torch.equal(trained[name], before) != name.startswith("text."), name


def test_a_step_that_cannot_be_dealt_out_evenly(
    clip: Checkpoint, vit: Checkpoint, pairs: TrainingData, folder: Path, accelerator: Accelerator
) -> None:
    with pytest.raises(OptionError, match="5 pairs a step cannot be dealt out evenly to 1 processes, 3 passes"):
        train(clip, pairs, folder, accelerator, replace(LIT, batch=5), batch_size=2)
    with pytest.raises(OptionError, match="is no zero-shot model"):
        train(vit, pairs, folder, accelerator)
