"""OOD scores of features through `hydractl evaluate`: every kind of system, and saved."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from hydractl.metrics.ood_scores import OOD_SCORES
from tests.cli.conftest import Command, models, numbers, save_clip, save_images

NAMES = [score.name for score in OOD_SCORES if score.needs_features]


@pytest.fixture(scope="session")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_images(tmp_path_factory.mktemp("data") / "calibration", count=18, seed=7)


@pytest.mark.parametrize("score", NAMES)
def test_a_fused_file_scores_as_its_members_in_turn_and_again_from_what_was_saved(
    hydractl: Command,
    vit: Path,
    other: Path,
    images: Path,
    noise: Path,
    calibration: Path,
    tmp_path: Path,
    score: str,
) -> None:
    hydra = tmp_path / "hydra"
    hydractl("fuse", vit, other, "--separate", "all", "-o", hydra)
    data = ("--id-data", images, "--ood-data", f"far/n={noise}", "--calib-data", calibration, "--batch-size", 5)
    scored = ("--ood-score", score, "--bootstrap", 5)
    saving = ("--save-logits", tmp_path / "saved")
    found = models(hydractl, f"DE={vit}+{other}", f"fused={hydra}", *data, *scored, *saving)
    auroc = found["DE"]["ood"]["n"]["auroc"]
    assert 0 <= auroc <= 1
    assert found["fused"]["ood"]["n"]["auroc"] == pytest.approx(auroc, abs=1e-6)
    again = models(hydractl, f"predictions:{tmp_path / 'saved' / 'DE'}", *scored)["DE"]
    assert numbers(again) == numbers(found["DE"])
    assert again["intervals"] == found["DE"]["intervals"]


def test_passes_with_dropout_and_zero_shot_models_have_features_too(
    hydractl: Command, vit: Path, images: Path, noise: Path, calibration: Path, tmp_path: Path
) -> None:
    clip = save_clip(tmp_path / "clip", 0)
    arguments = ("--id-data", images, "--ood-data", f"n={noise}", "--calib-data", calibration, "--template={label}")
    for score in NAMES:
        found = models(hydractl, f"mc={vit},mc-dropout=3,p=0.2", clip, *arguments, "--ood-score", score)
        assert all(0 <= entry["ood"]["n"]["auroc"] <= 1 for entry in found.values())


def test_features_lie_beside_the_logits_in_the_order_of_the_set(
    hydractl: Command, vit: Path, images: Path, calibration: Path, tmp_path: Path
) -> None:
    arguments = (vit, "--id-data", images, "--calib-data", calibration, "--ood-score", "vim")
    models(hydractl, *arguments, "--save-logits", tmp_path)
    saved, classifier = (
        load_file(tmp_path / "vit" / "id.safetensors"),
        load_file(tmp_path / "vit" / "classifier.safetensors"),
    )
    logits = saved["features"][0] @ classifier["weight"][0].T + classifier["bias"][0]
    np.testing.assert_allclose(logits, saved["logits"][0], atol=1e-6)
    again = hydractl("evaluate", *arguments, "--save-logits", tmp_path, "--resume", "--json", "-")
    assert json.loads(again.out)["models"] == models(hydractl, *arguments)


def test_outside_methods_bring_features_of_their_own(hydractl: Command, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    (tmp_path / "p" / "ood").mkdir(parents=True)
    inside, outside = (0, 0, 9, 9), (9, 9, 0, 0)
    for name, centre, count in (("id", inside, 30), ("calibration", inside, 60), ("ood/far", outside, 20)):
        features = generator.normal(centre, size=(count, 4)).astype(np.float32)
        labels = {} if name == "ood/far" else {"labels": np.arange(count) % 2}
        np.savez(tmp_path / "p" / f"{name}.npz", logits=features[:, 2:], features=features, **labels)
    saved = f"predictions:{tmp_path / 'p'}"
    for score in ("mahalanobis", "knn"):
        assert models(hydractl, saved, "--ood-score", score)["p"]["ood"]["far"]["auroc"] >= 0.99
    assert "add classifier.safetensors" in hydractl("evaluate", saved, "--ood-score", "vim").err
    np.savez(tmp_path / "p" / "classifier.npz", weight=np.eye(4)[2:], bias=np.zeros(2))
    assert models(hydractl, saved, "--ood-score", "vim")["p"]["ood"]["far"]["auroc"] > 0.9
    np.savez(tmp_path / "p" / "id.npz", logits=np.zeros((3, 2)), features=np.zeros((4, 2)), labels=np.zeros(3, int))
    assert "expected the same" in hydractl("evaluate", saved, "--ood-score", "knn").err
