"""Whatever the files of an image processor or a tokenizer hold, they prepare samples or are refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hydractl.checkpoint.disk import read_preprocessing
from hydractl.checkpoint.spec import ModelSpec
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.errors import CheckpointError
from tests.damage import edit_json, refuse_all
from tests.data.conftest import picture
from tests.data.tokenizers_and_processors import (
    bert_tokenizer,
    clip_files,
    image_spec,
    text_spec,
    vit_files,
    zero_shot_spec,
)


def timm_files(folder: Path) -> Path:
    settings = {"input_size": [3, 8, 8], "mean": [0.5] * 3, "std": [0.5] * 3, "crop_pct": 0.9, "crop_mode": "center",
                "interpolation": "bicubic"}  # fmt: skip
    content = {"image_processor_type": "TimmWrapperImageProcessor", "pretrained_cfg": settings}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    return folder


def opened(folder: Path, spec: ModelSpec) -> None:
    """Opens the files in a folder and prepares a sample with them."""
    preprocessor = preprocessor_from_json(read_preprocessing(folder), spec, str(folder), {"model_type": "bert"})
    if preprocessor.image:
        preprocessor([picture(0, 13, 7, 3)])
    if preprocessor.text:
        ids = preprocessor(["a good film , bad"])["input_ids"]
        embeddings = spec.towers[-1].embeddings
        assert 0 < ids.shape[1] <= embeddings.positions and ids.max() < vars(embeddings)["vocabulary"]


FILES: list[tuple[Callable[[Path], Path], Callable[[], ModelSpec], str, int]] = [
    (vit_files, image_spec, "preprocessor_config.json", 3),
    (timm_files, image_spec, "preprocessor_config.json", 2),
    (clip_files, zero_shot_spec, "tokenizer_config.json", 2),
    (clip_files, zero_shot_spec, "vocab.json", 7),
    (bert_tokenizer, text_spec, "tokenizer.json", 4),
    (bert_tokenizer, text_spec, "tokenizer_config.json", 1),
]


@pytest.mark.parametrize(("write", "spec", "name", "every"), FILES)
def test_every_damage_to_a_file(
    write: Callable[[Path], Path], spec: Callable[[], ModelSpec], name: str, every: int, tmp_path: Path
) -> None:
    path = write(tmp_path) / name

    def read(text: str) -> None:
        path.write_text(text, encoding="utf-8")
        opened(tmp_path, spec())

    assert refuse_all(read, name, CheckpointError, json.loads(path.read_text()), every) > 0.3


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"size": {"height": 10**6, "width": 8}}, "size.height is 1000000, should be less than or equal to 4096"),
        ({"size": 10**6}, "size.0 is 1000000"),
        ({"do_center_crop": True, "crop_size": [8, 10**6]}, "crop_size.1 is 1000000"),
        ({"pretrained_cfg": {"input_size": [3, 8, 8], "crop_pct": 1e-9}}, "pretrained_cfg.crop_pct is 1e-9"),
        ({"pretrained_cfg": {"input_size": [3, 10**6, 8]}}, "pretrained_cfg.input_size.1 is 1000000"),
        ({"image_std": [0, 0, 0]}, "it makes numbers that are not finite"),
        ({"image_mean": [0, 0]}, "it normalises 2 channels, the model has 3"),
    ],
)
def test_sizes_are_checked_before_an_image_is_made(changes: dict[str, Any], finding: str, tmp_path: Path) -> None:
    edit_json(vit_files(tmp_path) / "preprocessor_config.json", **changes)
    with pytest.raises(CheckpointError, match="preprocessor_config.json") as error:
        opened(tmp_path, image_spec())
    assert finding in str(error.value) or finding.replace("1e-9", "1e-09") in str(error.value)


def test_a_token_beyond_the_embeddings_is_refused(tmp_path: Path) -> None:
    path = bert_tokenizer(tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["very"] = 10**6
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json .* a token of number 1000000, the model embeds 14"):
        opened(tmp_path, text_spec())
