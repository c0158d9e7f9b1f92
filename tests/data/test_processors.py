"""Our own image processors, bit for bit those of transformers and timm; unknown settings are theirs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoImageProcessor, TimmWrapperImageProcessor

from hydractl.checkpoint.disk import read_preprocessing
from hydractl.data.processors import plain_images
from tests.data.conftest import picture
from tests.data.tokenizers_and_processors import clip_files, vit_files

IMAGES = [picture(seed, *shape) for seed, shape in enumerate([(8, 8, 3), (31, 17, 3), (5, 30, 3), (64, 65, 3)])]
TIMM = {"input_size": [3, 12, 12], "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25], "num_classes": 2}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"resample": 3},
        {"size": {"height": 13, "width": 7}, "resample": 3},
        {"do_rescale": False},
        {"do_normalize": False},
        {"do_normalize": False, "do_rescale": False},
        {"image_mean": [0.5], "image_std": [0.5], "rescale_factor": 0.01},
    ],
)
def test_images_of_vit(settings: dict[str, Any], tmp_path: Path) -> None:
    check_images(vit_files(tmp_path, **settings))


def test_images_of_clip_also_cropped_from_smaller_ones(tmp_path: Path) -> None:
    settings = json.loads((clip_files(tmp_path) / "preprocessor_config.json").read_text())
    for crop in ({"height": 8, "width": 9}, {"height": 15, "width": 12}):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({**settings, "crop_size": crop}))
        check_images(tmp_path)


def check_images(folder: Path) -> None:
    ours = plain_images(read_preprocessing(folder), 3)
    theirs = AutoImageProcessor.from_pretrained(folder)
    for images in (IMAGES[:1], IMAGES[1:2], IMAGES):
        found, wanted = ours(images, "pt")["pixel_values"], theirs(images, return_tensors="pt")["pixel_values"]
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    "settings", [{}, {"crop_pct": 0.9, "interpolation": "bilinear"}, {"crop_pct": 1.0}, {"mean": [0.5], "std": [0.5]}]
)
def test_images_of_timm(settings: dict[str, Any]) -> None:
    config = {**TIMM, **settings}
    files = {"preprocessor_config.json": {"image_processor_type": "TimmWrapper", "pretrained_cfg": config}}
    ours, theirs = plain_images(files, 3), TimmWrapperImageProcessor(config)
    assert torch.equal(ours(IMAGES, "pt")["pixel_values"], theirs(IMAGES, return_tensors="pt")["pixel_values"])


@pytest.mark.parametrize(
    "unknown", [{"do_pad": True}, {"resample": 1}, {"image_processor_type": "BeitImageProcessor"}, {"image_std": [0]}]
)
def test_other_settings_of_images_are_left_to_their_library(unknown: dict[str, Any], tmp_path: Path) -> None:
    files = read_preprocessing(vit_files(tmp_path))
    files["preprocessor_config.json"].update(unknown)
    assert plain_images(files, 3) is None
