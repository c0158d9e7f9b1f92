"""The whole command on real images and texts, against transformers run by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import load_dataset
from transformers import (
    AutoImageProcessor,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    ViTForImageClassification,
)

from tests.cli.conftest import Command

pytestmark = [pytest.mark.realdata, pytest.mark.slow]
BATCH = 64


@pytest.fixture(scope="session")
def cifar_vit(data_folder: Path) -> Path:
    folder = data_folder.parent / "ckpt" / "vit_cifar10"
    if not folder.is_dir():
        pytest.skip(f"no real checkpoint at {folder}")
    return folder


@torch.no_grad()
def transformers_predictions(folder: Path, images: list[Any]) -> np.ndarray:
    """[N], from transformers' own model and processor."""
    model = ViTForImageClassification.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    batches = (images[start : start + BATCH] for start in range(0, len(images), BATCH))
    logits = [model(**processor(images=batch, return_tensors="pt")).logits for batch in batches]
    return torch.cat(logits).argmax(-1).numpy()


def test_images(hydractl: Command, data_folder: Path, cifar_vit: Path, tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        hydractl("prune", cifar_vit, "--method=random", "--budget=4", f"--seed={seed}", "-o", tmp_path / f"m{seed}")
    hydractl("fuse", *(tmp_path / f"m{seed}" for seed in (0, 1, 2)), "-o", tmp_path / "hydra")
    ood = {"textures": "ood_textures", "mnist": "ood_mnist", "fashion": "ood_fashion"}
    sets = [part for name, folder in ood.items() for part in ("--ood-data", f"far/{name}={data_folder / folder}")]
    id_data = f"{data_folder / 'cifar10'}:validation"
    whole = hydractl("evaluate", cifar_vit, "--id-data", id_data, "--json", "-")
    table = hydractl(
        "evaluate", cifar_vit, tmp_path / "hydra", "--id-data", id_data, *sets, "--limit=300", "--json", "-"
    )
    assert (whole.code, table.code, whole.err, table.err) == (0, 0, "", "")
    validation = load_dataset("parquet", data_files=str(data_folder / "cifar10" / "validation.parquet"), split="train")
    predictions = transformers_predictions(cifar_vit, list(validation["image"]))
    accuracy = (predictions == np.array(validation["label"])).mean()
    assert json.loads(whole.out)["models"]["vit_cifar10"]["id"]["accuracy"] == accuracy
    models = json.loads(table.out)["models"]
    for model in models.values():
        assert {name: entry["samples"] for name, entry in model["ood"].items()} == dict.fromkeys(ood, 300)
    assert models["hydra"]["cost"]["members"] == 3
    assert models["hydra"]["id"]["disagreement"] > 0
    # Removing 4 of 36 heads costs a few points; removing the wrong rows would leave a guess of one in ten.
    assert models["hydra"]["id"]["accuracy"] > models["vit_cifar10"]["id"]["accuracy"] - 0.1


def save_small_bert(folder: Path, sentences: list[str]) -> Path:
    """A random BERT with the words of these sentences."""
    torch.manual_seed(0)
    known = {word for line in sentences for word in line.split()}
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(known)]
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = BertConfig(
        vocab_size=len(words),
        max_position_embeddings=64,
        id2label={0: "negative", 1: "positive"},
        label2id={"negative": 0, "positive": 1},
        **sizes,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    return folder


@torch.no_grad()
def test_texts(hydractl: Command, data_folder: Path, tmp_path: Path) -> None:
    path = data_folder / "sst2" / "validation.parquet"
    rows = load_dataset("parquet", data_files=str(path), split="train")
    folder = save_small_bert(tmp_path / "bert", rows["sentence"][:200])
    ood = ("--ood-data", f"trec={data_folder / 'ood_trec.csv'}", "--ood-data", f"{data_folder / 'ood_captions.jsonl'}")
    arguments = ("--id-data", f"{data_folder / 'sst2'}:validation", "--match-labels=index", "--json=-")
    result = hydractl("evaluate", folder, *arguments, *ood)
    assert (result.code, result.err) == (0, "")
    entry = json.loads(result.out)["models"]["bert"]
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(list(rows["sentence"]), return_tensors="pt", padding=True, truncation=True, max_length=64)
    logits = model(**inputs).logits
    labels = torch.tensor(rows["label"])
    assert entry["id"]["accuracy"] == (logits.argmax(-1) == labels).double().mean().item()
    assert entry["id"]["nll"] == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), abs=1e-5)
    assert {name: found["samples"] for name, found in entry["ood"].items()} == {"trec": 500, "ood_captions": 1000}
