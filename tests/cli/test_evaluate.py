"""`hydractl evaluate`: numbers equal transformers' and scikit-learn's, leaks are refused, streams are clean."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score
from transformers import AutoImageProcessor, AutoTokenizer, BertForSequenceClassification, ViTForImageClassification

from hydractl.checkpoint.contents import identity
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import LABELS, Command, save_vit


def report(hydractl: Command, *arguments: object) -> dict[str, Any]:
    result = hydractl("evaluate", *arguments, "--json", "-")
    assert (result.code, result.err) == (0, "")
    content: dict[str, Any] = json.loads(result.out)
    return content


@torch.no_grad()
def probabilities(folder: Path, files: list[Path]) -> np.ndarray:
    """Transformers' own answer to image files, [N,C]."""
    model = ViTForImageClassification.from_pretrained(folder).eval()
    images = [Image.open(file).convert("RGB") for file in files]
    inputs = AutoImageProcessor.from_pretrained(folder)(images=images, return_tensors="pt")
    return model(**inputs).logits.softmax(-1).numpy()


def test_a_folder_s_numbers_are_those_of_transformers(hydractl: Command, vit: Path, images: Path, noise: Path) -> None:
    entry = report(hydractl, f"mine={vit}", "--id-data", images, "--ood-data", f"far/noise={noise}")["models"]["mine"]
    inside = probabilities(vit, sorted(images.glob("*/*.png")))
    outside = probabilities(vit, sorted(noise.glob("*.png")))
    labels = np.repeat(np.arange(3), 4)
    scores = -np.concatenate([inside.max(1), outside.max(1)])
    assert entry["id"]["samples"] == 12
    assert entry["id"]["accuracy"] == (inside.argmax(1) == labels).mean()
    assert entry["id"]["nll"] == pytest.approx(-np.log(inside[np.arange(12), labels]).mean(), abs=1e-5)
    assert entry["id"]["brier"] == pytest.approx(((inside - np.eye(3)[labels]) ** 2).sum(1).mean(), abs=1e-5)
    assert entry["ood"]["noise"]["auroc"] == pytest.approx(roc_auc_score([0] * 12 + [1] * 5, scores), abs=1e-6)
    assert entry["ood"]["noise"]["group"] == "far"
    assert entry["ood_means"].keys() == {"far", "all"}
    assert entry["cost"]["parameters"] == ViTForImageClassification.from_pretrained(vit).num_parameters()
    assert entry["model"] == {"reference": os.path.relpath(vit), "sha256": identity(read_checkpoint(vit))}


@torch.no_grad()
def test_texts_too(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    texts = ["a good film", "bad", "a owl", "good good bad owl film a a a a"]
    labels = ["cat", "dog", "owl", "cat"]
    rows = [json.dumps({"text": text, "label": label}) for text, label in zip(texts, labels, strict=True)]
    (tmp_path / "id.jsonl").write_text("\n".join(rows))
    (tmp_path / "ood.csv").write_text("text\nowl owl\nfilm\n")
    entry = report(
        hydractl, bert, "--id-data", tmp_path / "id.jsonl", "--ood-data", tmp_path / "ood.csv", "--batch-size", 2
    )["models"]["bert"]
    inputs = AutoTokenizer.from_pretrained(bert)(texts, return_tensors="pt", padding=True)
    logits = BertForSequenceClassification.from_pretrained(bert).eval()(**inputs).logits
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor([LABELS.index(label) for label in labels]))
    assert entry["id"]["nll"] == pytest.approx(expected.item(), abs=1e-5)
    assert entry["ood"]["ood"]["samples"] == 2


def test_texts_that_lose_their_end_are_counted(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    rows = ["a " * 30, "a", "good " * 15]  # the model takes 16 tokens, two of them its own
    (tmp_path / "id.jsonl").write_text("\n".join(json.dumps({"text": text, "label": "cat"}) for text in rows))
    arguments = ("evaluate", bert, "--id-data", tmp_path / "id.jsonl")
    assert hydractl(*arguments).err == ("note: bert: id: 2 of 3 texts are too long for the model and lost their end\n")
    assert hydractl(*arguments, "--quiet").err == ""


def test_one_table_of_models_of_any_kind(
    hydractl: Command, vit: Path, images: Path, noise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        hydractl("prune", vit, "--method=random", "--budget=2", f"--seed={seed}", "-o", f"m{seed}")
    hydractl("fuse", "m0", "m1", "-o", "hydra.safetensors")
    ood = ("--ood-data", f"near/noise={noise}", "--ood-data", f"far/again={noise}")
    result = hydractl("evaluate", vit, "m0", "hydra.safetensors", "--id-data", images, *ood, "--json", "report.json")
    assert (result.code, result.err) == (0, "")
    table = result.out.split("OOD is positive.")[0]
    for name in ("vit", "m0", "hydra"):
        assert f"\n{name} " in table
    for title in ("ID", "mean of all", "near/noise", "far/again", "cost"):
        assert title in table
    assert max(map(len, result.out.splitlines())) <= 120
    assert str(tmp_path) not in Path("report.json").read_text()
    saved = json.loads(Path("report.json").read_text())
    assert (saved["format"], saved["version"]) == ("hydractl-report", 1)
    assert saved["models"]["m0"]["id"]["mutual_information"] == 0
    assert saved["models"]["hydra"]["id"]["mutual_information"] > 0
    assert saved["models"]["hydra"]["cost"]["members"] == 2


def test_a_limit_takes_samples_of_each_set(hydractl: Command, vit: Path, images: Path, noise: Path) -> None:
    result = hydractl("evaluate", vit, "--id-data", images, "--ood-data", f"n={noise}", "--limit", 2, "--json", "-")
    assert result.err == f"note: {images}: the 2 samples taken hold 2 of 3 classes\n"
    entry = json.loads(result.out)["models"]["vit"]
    assert (entry["id"]["samples"], entry["ood"]["n"]["samples"]) == (2, 2)


def test_labels_are_matched_by_name_whatever_their_order(
    hydractl: Command, vit: Path, images: Path, tmp_path: Path
) -> None:
    # The same network with its classes in another order: what it says by name is the same.
    other = save_vit(
        tmp_path / "other", id2label={0: "owl", 1: "cat", 2: "dog"}, label2id={"owl": 0, "cat": 1, "dog": 2}
    )
    weights = ViTForImageClassification.from_pretrained(vit)
    turned = ViTForImageClassification.from_pretrained(other)
    state = weights.state_dict()
    for name in ("classifier.weight", "classifier.bias"):
        state[name] = state[name][[2, 0, 1]]
    turned.load_state_dict(state)
    turned.save_pretrained(other)
    models = report(hydractl, f"a={vit}", f"b={other}", "--id-data", images)["models"]
    assert models["a"]["id"]["nll"] == pytest.approx(models["b"]["id"]["nll"], abs=1e-6)
