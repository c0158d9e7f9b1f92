import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from open_clip.tokenizer import SimpleTokenizer
from open_clip.transform import image_transform
from PIL import Image
from torch.testing import assert_close
from transformers import CLIPTokenizer

import hydractl
from hydractl.checkpoint.contents import identity
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.errors import CheckpointError
from hydractl.families.load import read_checkpoint
from hydractl.families.open_clip import preprocessing
from tests.conftest import build_reference
from tests.families.open_clip import open_clip
from tests.references import randomised

REFUSED = {
    "timm tower": ("vision_cfg", {"timm_model_name": "resnet18"}, "vision_cfg.timm_model_name"),
    "resnet": ("vision_cfg", {"layers": [1, 1, 1, 1]}, "layers"),
    "pooler": ("vision_cfg", {"attentional_pool": True}, "vision_cfg.attentional_pool"),
    "all tokens": ("vision_cfg", {"pool_type": "none"}, "pool_type"),
    "other text": ("text_cfg", {"hf_model_name": "roberta-base"}, "text_cfg.hf_model_name"),
    "both ways": ("text_cfg", {"no_causal_mask": True}, "text_cfg.no_causal_mask"),
    "first word": ("text_cfg", {"pool_type": "first"}, "pool_type"),
    "norms": ("text_cfg", {"scale_attn": True}, "text_cfg.scale_attn"),
    "activation": ("text_cfg", {"act_kwargs": {"negative_slope": 1}}, "act_kwargs.negative_slope"),
    "field of tomorrow": ("vision_cfg", {"rotary": True}, "vision_cfg.rotary"),
    "sigmoid": (None, {"init_logit_bias": -10}, "init_logit_bias"),
    "captions": (None, {"multimodal_cfg": {"layers": 2}}, "multimodal_cfg"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case: str, tmp_path: Path) -> None:
    part, changes, message = REFUSED[case]
    folder = build_reference("open-clip").save(tmp_path)
    config = json.loads((folder / "open_clip_config.json").read_text())
    (config["model_cfg"][part] if part else config["model_cfg"]).update(changes)
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(folder)


@pytest.mark.parametrize("interpolation", [None, "bilinear", "random"])
@pytest.mark.parametrize("size", [(12, 12), (12, 8)])
@pytest.mark.parametrize("mode", ["shortest", "squash"])
def test_images_are_prepared_as_open_clip_prepares_them(
    mode: str, size: tuple[int, int], interpolation: str | None, tmp_path: Path
) -> None:
    theirs = randomised("open-clip", *open_clip(vision={"image_size": size}))
    checkpoint = read_checkpoint(theirs.save(tmp_path / "theirs"))
    settings: Any = {"resize_mode": mode, "interpolation": interpolation, "mean": [0.5] * 3, "std": [0.25] * 3}
    config = {**checkpoint.config, "preprocess_cfg": settings}
    files = {"preprocessor_config.json": preprocessing("here", config)}
    vision_only = type(checkpoint.spec)("image-classification", checkpoint.spec.towers[:1], classes=2)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8))
    expected = image_transform(size, is_train=False, **settings)(image)
    pixels = preprocessor_from_json(files, vision_only, "here")([image])["pixel_values"]
    assert torch.equal(pixels[0], expected)


def test_a_repository_with_both_forms_is_read_as_transformers_reads_it(tmp_path: Path) -> None:
    folder = build_reference("clip").save(tmp_path / "both")
    expected = identity(read_checkpoint(folder))
    other = build_reference("open-clip").save(tmp_path / "open-clip")
    for path in other.iterdir():
        path.rename(folder / path.name)
    assert identity(read_checkpoint(folder)) == expected


def test_class_prompts_are_read_as_open_clip_reads_them(tmp_path: Path) -> None:
    theirs = SimpleTokenizer(context_length=8)
    reference = randomised("open-clip", *open_clip(text={"vocab_size": 49408}))
    folder = reference.save(tmp_path / "model")
    names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    words = {names.get(word, word): place for word, place in theirs.encoder.items()}
    # As the hub's repositories of OpenCLIP models carry it: the same words, padded with the end instead of with 0.
    CLIPTokenizer(vocab=words, merges=list(theirs.bpe_ranks), model_max_length=8).save_pretrained(folder)
    labels = ["Owl", "cat's  eye", "café", "a very long name that is cut off at the end"]
    labels += ["\ufb01sh", "\u2019", "&amp;amp;"]  # which it cleans first
    model = hydractl.load(folder)
    model.set_classes(labels, "A photo of a {label}.")
    tokens = theirs([f"A photo of a {label}." for label in labels])
    with torch.no_grad():
        expected = reference.model.get_logits(reference.inputs["pixel_values"], tokens)[0]
    logits = model(pixel_values=reference.inputs["pixel_values"]).member_logits[0]
    assert_close(logits, expected, rtol=0, atol=1e-10)
