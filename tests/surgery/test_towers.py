"""Embeddings of networks that answer something else, against transformers' own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close
from transformers import AutoModel, AutoProcessor, ViTModel

import hydractl
from hydractl.errors import OptionError
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.surgery.towers import as_embedding
from tests.cli.conftest import save_clip, save_vit
from tests.factories import save_tagger

TEXTS = ["cat", "dog owl"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("towers") / "clip")


def images() -> list[Image.Image]:
    return [Image.fromarray(one) for one in np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)]


def test_a_zero_shot_model_gives_what_it_compares(clip: Path) -> None:
    inputs = AutoProcessor.from_pretrained(clip)(images=images(), text=TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(clip)(**inputs)
    found = hydractl.predict(clip, data={"three": images()}, embed="image")
    assert_close(torch.from_numpy(found.embeddings), theirs.image_embeds, rtol=0, atol=1e-5)
    found = hydractl.predict(clip, text=TEXTS, embed="text")
    assert_close(torch.from_numpy(found.embeddings), theirs.text_embeds, rtol=0, atol=1e-5)


def test_a_classifier_gives_what_it_reads(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit")
    found = as_embedding(read_checkpoint(vit), "image")
    pixels = torch.randn(2, 3, 8, 8)
    bare = ViTModel.from_pretrained(vit)
    with torch.no_grad():
        assert_close(from_checkpoint(found)(pixels).member_logits[0], bare(pixels).last_hidden_state[:, 0])
    assert found.labels is None and found.spec.classes is None
    with pytest.raises(OptionError, match="`embed` text: .* image"):
        hydractl.predict(vit, text=["a"], embed="text")


def test_a_tagger_has_nothing_to_pool(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="`embed` text: .* words"):
        hydractl.predict(save_tagger(tmp_path / "tagger"), text=["a"], embed="text")


def test_members_and_scores_stay(clip: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        hydractl.prune(clip, method="random", budget=6, seed=seed, output=tmp_path / f"m{seed}")
    hydra = hydractl.fuse([tmp_path / "m0", tmp_path / "m1"], separate="all", output=tmp_path / "hydra")
    for what, given in (("image", {"data": {"three": images()}}), ("text", {"text": TEXTS})):
        found = hydractl.predict(tmp_path / "hydra", embed=what, **given)
        alone = [hydractl.predict(tmp_path / f"m{seed}", embed=what, **given).embeddings for seed in (0, 1)]
        assert_close(found.member_logits, np.stack(alone), rtol=0, atol=1e-6)
    many = np.random.default_rng(1).integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)
    names, pictures = ["cat", "dog", "owl"], [Image.fromarray(pixels) for pixels in many]
    answers = hydractl.predict(hydra, data={"many": pictures}, classes=names).labels
    right = [names.index(answer) if at % 2 else at % 3 for at, answer in enumerate(answers)]
    data = {"many": list(zip(pictures, right, strict=True))}
    calibrated = hydractl.calibrate(hydra, id_data=data, classes=names)
    whole = hydractl.predict(calibrated, data={"three": images()}, classes=["cat", "dog", "owl"])
    found = hydractl.predict(calibrated, data={"three": images()}, embed="image")
    assert_close(found.typicality, whole.typicality)
    assert hydractl.predict(calibrated, text=TEXTS, embed="text").typicality is None
