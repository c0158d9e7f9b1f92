"""Files that the version of 2026-11-26 calibrated, before scores read every layer, and what they answered."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import hydractl

DATA = Path(__file__).parent / "data"
ANSWERS = json.loads((DATA / "answers.json").read_text())
IMAGES = [Image.fromarray(one) for one in np.random.default_rng(1).integers(0, 256, (6, 8, 8, 3)).astype(np.uint8)]


@pytest.mark.parametrize("score", ANSWERS)
def test_a_file_of_an_earlier_version_answers_as_before(score: str) -> None:
    found = hydractl.load(DATA / f"{score}.safetensors").predict(IMAGES)
    assert found.ood_score.tolist() == pytest.approx(ANSWERS[score]["ood_score"], rel=1e-4, abs=1e-5)
    assert found.typicality.tolist() == pytest.approx(ANSWERS[score]["typicality"], abs=1e-6)
    assert found.profile is None
