import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config

import hydractl
from hydractl.checkpoint.contents import identity
from hydractl.errors import CheckpointError
from hydractl.families.load import read_checkpoint, write_checkpoint
from tests.conftest import build_reference
from tests.damage import edit_json
from tests.references import CLASSES, make_timm, save_timm

TINY = {"img_size": 32, "patch_size": 16, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": CLASSES}
VIT = "vit_base_patch16_224"


def folder_of(tmp_path: Path, name: str, **changes: Any) -> Path:
    save_timm(make_timm(name, **{**TINY, **changes}), tmp_path / name)
    return tmp_path / name


REFUSED = {
    "blocks side by side": ("vit_base_patch16_18x2_224", {}, "has blocks of kind ParallelThingsBlock"),
    "norms after": ("eva02_enormous_patch14_clip_224", {}, "has blocks of kind EvaBlockPostNorm"),
    "mixed attention is normed": ("eva02_base_patch16_clip_224", {"img_size": 224}, "norms what attention mixes"),
    "trained places": ("vit_small_patch16_rope_mixed_224", {}, "turns queries and keys by places of another kind"),
    "map pooling": ("vit_pe_core_base_patch16_224", {"attn_pool_mlp_ratio": 2}, "pools with an attention of another"),
    "two tables": ("beit_base_patch16_224", {"use_shared_rel_pos_bias": True}, "adds relative positions of a layer"),
    "max pooling": (VIT, {"global_pool": "max"}, "pools by 'max'"),
    "scale norm": (VIT, {"scale_attn_norm": True}, "norms what attention mixes"),
    "differential": (VIT, {"attn_layer": "diff"}, "has attention of kind DiffAttention"),
    "rms": (VIT, {"norm_layer": "rmsnorm"}, "has norms other than LayerNorm"),
    "activation": (VIT, {"act_layer": "mish"}, "has activation Mish"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case: str, tmp_path: Path) -> None:
    name, changes, message = REFUSED[case]
    with pytest.raises(CheckpointError, match=f"{message}.*, which is not supported"):
        read_checkpoint(folder_of(tmp_path, name, **changes))


def test_other_architectures_are_refused_by_name(tmp_path: Path) -> None:
    save_timm(make_timm("resnet10t", num_classes=2), tmp_path / "resnet")
    with pytest.raises(CheckpointError, match="resnet10t"):
        read_checkpoint(tmp_path / "resnet")
    folder = folder_of(tmp_path, VIT)
    edit_json(folder / "config.json", architecture="no_such_model")
    with pytest.raises(CheckpointError, match="'no_such_model'"):
        read_checkpoint(folder)


def test_images_are_prepared_as_timm_prepares_them(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, VIT)
    write_checkpoint(read_checkpoint(folder), tmp_path / "ours")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (61, 47, 3), dtype=np.uint8))
    config = resolve_data_config(json.loads((folder / "config.json").read_text())["pretrained_cfg"])
    expected = create_transform(**config, is_training=False)(image)[None]
    for reference in (folder, tmp_path / "ours"):
        assert torch.equal(hydractl.load(reference).preprocessor([image])["pixel_values"], expected)


def test_labels_are_those_the_config_names(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, VIT)
    assert read_checkpoint(folder).labels == tuple(f"LABEL_{i}" for i in range(CLASSES))
    edit_json(folder / "config.json", label_names=list("abcde"))
    assert read_checkpoint(folder).labels == ("a", "b", "c", "d", "e")


def test_the_oldest_configs_name_their_classes_and_go_back_to_timm(tmp_path: Path) -> None:
    save_timm(make_timm("test_vit", num_classes=2), tmp_path / "old")
    settings = json.loads((tmp_path / "old" / "config.json").read_text())["pretrained_cfg"]
    settings |= {"architecture": "test_vit", "fixed_input_size": True, "labels": ["cat", "dog"]}
    (tmp_path / "old" / "config.json").write_text(json.dumps(settings))
    hydractl.export(tmp_path / "old", format="hf", output=tmp_path / "back")
    theirs = timm.create_model(f"local-dir:{tmp_path / 'back'}", pretrained=True)
    assert theirs.pretrained_cfg["label_names"] == ["cat", "dog"]
    assert read_checkpoint(tmp_path / "back").labels == read_checkpoint(tmp_path / "old").labels == ("cat", "dog")


def test_one_file_beside_its_config_is_the_same_checkpoint(tmp_path: Path) -> None:
    folder = build_reference("timm").save(tmp_path / "timm")
    expected = identity(read_checkpoint(folder))
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    assert identity(read_checkpoint(folder / "weights.safetensors")) == expected
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"put the model.s config\.json beside it"):
        read_checkpoint(folder / "weights.safetensors")
