"""The pipelines for data sets that do not ship: on a few images and texts of the same form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import LABELS, save_bert, save_images, save_vit

ROOT = Path(__file__).parents[2]


def make(tmp_path: Path, target: str, **variables: object) -> dict[str, dict[str, object]]:
    """Runs one target in this environment; the models of its report."""
    stamp = tmp_path / "installed"
    stamp.write_text(str(ROOT))
    given = {"BUILD": tmp_path / "build", "VENV": sys.prefix, "INSTALLED": stamp, **variables}
    settings = [f"{name}={value}" for name, value in given.items()]
    done = subprocess.run(["make", "-C", ROOT / "examples", target, *settings], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "build" / target / "report.json").read_text())
    models: dict[str, dict[str, object]] = report["models"]
    return models


@pytest.mark.slow
def test_cifar10(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit")
    for split, seed in (("train", 0), ("test", 1)):
        save_images(tmp_path / "pets" / split, seed=seed)
    save_images(tmp_path / "noise", seed=2)
    models = make(tmp_path, "cifar10", CIFAR10=tmp_path / "pets", CIFAR10_VIT=vit, CIFAR10_BUDGET=2, CIFAR10_STEPS=2,
                  OOD=f"far/noise={tmp_path / 'noise'}", FINETUNE="--device cpu --set batch=4")  # fmt: skip
    assert list(models) == ["single", "tuned", "hydra", "deep-ensemble", "lora-ensemble", "batch-ensemble"]


@pytest.mark.slow
def test_sst2(tmp_path: Path) -> None:
    bert = save_bert(tmp_path / "bert")
    (tmp_path / "sst2").mkdir()
    for split, words in (("train", ("good film", "bad film", "a owl")), ("validation", ("good", "bad", "owl film"))):
        rows = [f"{text} {'a ' * n}a,{label}" for n in range(3) for text, label in zip(words, LABELS, strict=True)]
        (tmp_path / "sst2" / f"{split}.csv").write_text("\n".join(["sentence,label", *rows]))
    (tmp_path / "ood.csv").write_text("text\nowl owl\nbad owl owl\n")
    models = make(tmp_path, "sst2", SST2=tmp_path / "sst2", BERT=bert, BERT_BUDGET=4, BERT_EPOCHS=1,
                  OOD_TEXT=f"far/owls={tmp_path / 'ood.csv'}", NEW_CLASSIFIER="zeros",
                  FINETUNE="--device cpu --set batch=4 --val-split 2")  # fmt: skip
    assert list(models) == ["dense", "hydra", "member0", "member1", "member2"]
