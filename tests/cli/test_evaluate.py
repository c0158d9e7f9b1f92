"""`hydractl evaluate`: numbers equal transformers' and scikit-learn's, leaks are refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score
from transformers import AutoImageProcessor, AutoTokenizer, BertForSequenceClassification, ViTForImageClassification

from hydractl.checkpoint.contents import identity
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import LABELS, Command, models, save_images


@torch.no_grad()
def probabilities(folder: Path, files: list[Path]) -> np.ndarray:
    """Transformers' own answer to image files, [N,C]."""
    model = ViTForImageClassification.from_pretrained(folder).eval()
    images = [Image.open(file).convert("RGB") for file in files]
    inputs = AutoImageProcessor.from_pretrained(folder)(images=images, return_tensors="pt")
    return model(**inputs).logits.softmax(-1).numpy()


def test_a_folder_s_numbers_are_those_of_transformers(hydractl: Command, vit: Path, images: Path, noise: Path) -> None:
    entry = models(hydractl, f"mine={vit}", "--id-data", images, "--ood-data", f"far/noise={noise}")["mine"]
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
    entry = models(
        hydractl, bert, "--id-data", tmp_path / "id.jsonl", "--ood-data", tmp_path / "ood.csv", "--batch-size", 2
    )["bert"]
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


def test_means_over_kinds_and_severities(hydractl: Command, vit: Path, images: Path, tmp_path: Path) -> None:
    other = save_images(tmp_path / "other", count=2, seed=5)
    sets = [f"--shift-data={name}={images}" for name in ("fog/1", "rain/1", "rain/2")]
    arguments = ["evaluate", vit, "--id-data", images, *sets, f"--shift-data=fog/2={other}", "--bootstrap=0"]
    result = hydractl(*arguments, f"--shift-data=saturate/1={other}", "--json=-")
    found = json.loads(result.out)["models"]["vit"]
    same, differs = found["id"], found["shift"]["fog"]["2"]
    assert {key: found["shift"]["fog"]["1"][key] for key in same} == same
    for metric in ("accuracy", "brier", "nll", "ece", "adaptive_ece"):
        means = {
            where: {name: one[metric] for name, one in found["shift_means"][where].items()}
            for where in ("by_severity", "by_kind")
        }
        half = (same[metric] + differs[metric]) / 2
        assert means["by_severity"] == pytest.approx({"1": same[metric], "2": half})
        # Of the kinds besides the fifteen there is a mean, and they are in no other.
        assert means["by_kind"] == pytest.approx(
            {"fog": half, "rain": same[metric], "saturate": found["shift"]["saturate"]["1"][metric]}
        )
        assert found["shift_means"]["all"][metric] == pytest.approx((3 * same[metric] + differs[metric]) / 4)
    assert found["shift_means"]["all"]["samples"] == 3 * same["samples"] + 6
    alone = json.loads(hydractl("evaluate", vit, "--id-data", images, sets[0], "--json=-").out)
    assert "shift_means" not in alone["models"]["vit"]
