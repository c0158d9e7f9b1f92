"""Inputs equal, bit for bit, those of transformers' processors opened from the same folder."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from transformers import AutoImageProcessor, AutoTokenizer

from hydractl.checkpoint.disk import read_preprocessing
from hydractl.checkpoint.spec import ModelSpec
from hydractl.data.preprocess import TextPreprocessor, preprocessor_from_json
from hydractl.errors import CheckpointError, DataError
from tests.damage import edit_json, refuse_all
from tests.data.conftest import picture
from tests.data.tokenizers_and_processors import (
    bert_tokenizer,
    bert_words,
    clip_files,
    folder_preprocessor,
    image_spec,
    text_spec,
    vit_files,
    zero_shot_spec,
)

SHAPES = [(8, 8, 3), (13, 7, 3), (5, 30, 3), (13, 7, 3), (1, 1, 3)]
IMAGES = [picture(seed, *shape) for seed, shape in enumerate(SHAPES)]
TEXTS = ["A good film.", "very", "badly, very badly. " * 9, "Goodest unknown word", "é A"]


def equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_model_of_one_channel_gets_one(tmp_path: Path) -> None:
    vit_files(tmp_path, image_mean=[0.3], image_std=[0.4])
    grey = [image.convert("L") for image in IMAGES]
    ours = folder_preprocessor(tmp_path, image_spec(channels=1))
    assert ours(IMAGES)["pixel_values"].shape == (5, 1, 8, 8)
    assert equal(ours(grey), dict(AutoImageProcessor.from_pretrained(tmp_path)(grey, return_tensors="pt")))


PROMPTS = ["a cat", "a photo of a cat on a mat"]


@pytest.mark.parametrize(
    ("write", "spec", "texts", "tokens"),
    [
        *((write, text_spec(), TEXTS, 16) for write in (bert_words, bert_tokenizer)),
        (clip_files, zero_shot_spec(), PROMPTS, 10),
    ],
)
def test_texts(write: Callable[[Path], Path], spec: ModelSpec, texts: list[str], tokens: int, tmp_path: Path) -> None:
    ours = folder_preprocessor(write(tmp_path), spec)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    expected = theirs(texts, padding=True, truncation=True, max_length=tokens, return_tensors="pt")
    assert expected["input_ids"].shape == (len(texts), tokens)
    assert equal(ours(texts), dict(expected))


@pytest.mark.parametrize("types", [0, 1])
def test_types_go_only_to_models_that_tell_them_apart(types: int, tmp_path: Path) -> None:
    spec = text_spec()
    embeddings = replace(spec.towers[0].embeddings, token_types=types)
    spec = replace(spec, towers=(replace(spec.towers[0], embeddings=embeddings),))
    ours = folder_preprocessor(bert_tokenizer(tmp_path), spec)
    expected = dict(AutoTokenizer.from_pretrained(tmp_path)(["a film"], ["good"], return_tensors="pt"))
    assert expected.pop("token_type_ids").any()
    assert equal(ours([("a film", "good")]), expected)


def test_lengths_and_truncated_texts_are_counted(tmp_path: Path) -> None:
    preprocessor = folder_preprocessor(bert_tokenizer(tmp_path), text_spec())
    # [CLS] a good film . [SEP] / [CLS] very [SEP] / cut / [CLS] good ##est [UNK] [UNK] [SEP] / [CLS] [UNK] a [SEP]
    lengths, truncated = preprocessor.text.lengths(TEXTS)
    assert (lengths.tolist(), truncated) == ([6, 3, 16, 6, 4], 1)
    pairs = [("a", "film"), ("very " * 20, "a"), ("a " * 7, "a " * 6), ("a " * 7, "a " * 7)]
    lengths, truncated = preprocessor.text.lengths(pairs)
    assert (lengths.tolist(), truncated) == ([5, 16, 16, 16], 2)


def test_texts_are_filled_where_padding_is_text(tmp_path: Path) -> None:
    spec = text_spec()
    tower = replace(spec.towers[0], embeddings=replace(spec.towers[0].embeddings, filled=True))
    inputs = folder_preprocessor(bert_tokenizer(tmp_path), replace(spec, towers=(tower,)))(TEXTS)
    assert {name: tuple(tensor.shape) for name, tensor in inputs.items()} == {"input_ids": (len(TEXTS), 16)}


def test_no_code_of_a_checkpoint_is_run(tmp_path: Path) -> None:
    folder = vit_files(tmp_path / "model")
    own = {"image_processor_type": "Mine", "auto_map": {"AutoImageProcessor": "mine.Mine"}}
    edit_json(folder / "preprocessor_config.json", **own)
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Mine: pass\n")
    with pytest.raises(CheckpointError, match="preprocessor_config.json"):
        folder_preprocessor(folder, image_spec())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("spec", "file"), [(image_spec(), "preprocessor_config.json"), (text_spec(), "tokenizer.json")]
)
def test_a_missing_file_is_named(spec: ModelSpec, file: str) -> None:
    with pytest.raises(CheckpointError, match=f"model: .*{file}"):
        preprocessor_from_json({}, spec, "model")


def test_images_that_do_not_fit_one_batch(tmp_path: Path) -> None:
    preprocessor = folder_preprocessor(vit_files(tmp_path, do_resize=False), image_spec())
    with pytest.raises(DataError, match="5 images do not fit"):
        preprocessor(IMAGES)


class Panic(BaseException):
    """As tokenizers raise it, which are written in Rust."""


def test_a_tokenizer_that_panics_is_an_error_of_one_line() -> None:
    texts = TextPreprocessor(Mock(side_effect=Panic("index out of bounds: the len is 3. And a trace")), 8)
    with pytest.raises(DataError, match=r"'a film' \(index out"):
        texts(["a film"])
    with pytest.raises(DataError, match="2 texts from 'a | b'"):
        texts.lengths([("a", "b"), ("c", "d")])


@pytest.mark.parametrize(("samples", "message"), [([{1}], "set is not an image"), ([], "takes images, not nothing")])
def test_samples_of_another_kind(samples: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        folder_preprocessor(vit_files(tmp_path), image_spec())(samples)


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


@pytest.mark.slow
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


def test_a_token_beyond_the_embeddings_is_refused_where_a_text_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = bert_tokenizer(tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["very"] = 10**6
    path.write_text(json.dumps(content))
    ours = folder_preprocessor(tmp_path, text_spec())
    assert "1 tokens that the model does not embed" in caplog.text
    texts = ["a good film", "bad"]
    assert equal(ours(texts), dict(AutoTokenizer.from_pretrained(tmp_path)(texts, padding=True, return_tensors="pt")))
    with pytest.raises(DataError, match="the token 'very'"):
        ours([*texts, "very bad"])
    edit_json(tmp_path / "tokenizer_config.json", cls_token="[MINE]")
    with pytest.raises(CheckpointError, match=r"token '\[MINE\]'"):
        folder_preprocessor(tmp_path, text_spec())
