"""What goes back to the library it came from loads there, and is the same to the bit."""

import json
import random
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import open_clip
import pytest
import timm
import torch
import transformers
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close

from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import member_heads
from hydractl.errors import CheckpointError, OptionError
from hydractl.exports.stock import write_stock
from hydractl.families.load import read_checkpoint
from hydractl.schema import Origin, parse_json
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads
from tests.conftest import build_reference
from tests.damage import damages, refused
from tests.references import Reference
from tests.surgery.test_slicing import zero_heads

#: What the library fills in itself because no logit depends on it.
PASSED_OVER = ("mask_token", "vision_model.head.", "post_layernorm")


def reload(folder: Path, like: nn.Module) -> nn.Module:
    """The model as its own library loads it."""
    if (folder / "open_clip_config.json").exists():
        config = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
        model: Any = type(like)(**{k: v for k, v in config.items() if k != "custom_text"}).double()
        open_clip.load_checkpoint(model, str(folder / "open_clip_model.safetensors"))
        return model.eval()
    if isinstance(like, timm.models.VisionTransformer | timm.models.Eva | timm.models.Beit):
        model = timm.create_model(f"local-dir:{folder}", pretrained=False).double()
        timm.models.load_checkpoint(model, str(folder / "model.safetensors"))
        return model.eval()
    # Buffers that no file holds follow `double` alone.
    return type(like).from_pretrained(folder, dtype=torch.float64).double().eval()


def test_dense_there_and_back_is_the_same_to_the_bit(reference: Reference, tmp_path: Path) -> None:
    theirs = reference.save(tmp_path / "theirs")
    write_stock(read_checkpoint(theirs), tmp_path / "back")
    [weights] = tmp_path.glob("back/*.safetensors")
    before, after = load_file(theirs / weights.name), load_file(weights)
    for name, tensor in after.items():
        assert before[name].dtype == tensor.dtype and before[name].shape == tensor.shape
        assert before[name].numpy().tobytes() == tensor.numpy().tobytes(), name
    left = before.keys() - after.keys()
    assert [name for name in left if not any(passed in name for passed in PASSED_OVER)] == []


def test_pruned_loads_there_with_zeros_for_heads(reference: Reference, tmp_path: Path) -> None:
    dense = read_checkpoint(reference.save(tmp_path / "theirs"))
    heads = member_heads(dense.heads, 0)
    dropped = random.Random(3).sample(heads, len(heads) // 3)
    write_stock(drop_heads(dense, dropped), tmp_path / "pruned")
    zero_heads(reference, dropped, {tower.name: tower.head_width for tower in dense.spec.towers})
    loaded = replace(reference, model=reload(tmp_path / "pruned", reference.model))
    assert_close(loaded.logits(), reference.logits(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["vit", "deit-distilled", "roberta", "clip", "timm", "open-clip"])
def test_a_temperature_is_divided_out(name: str, tmp_path: Path) -> None:
    reference = build_reference(name)
    checkpoint = replace(read_checkpoint(reference.save(tmp_path / "theirs")), calibration=Calibration(2.5))
    write_stock(checkpoint, tmp_path / "calibrated")
    loaded = replace(reference, model=reload(tmp_path / "calibrated", reference.model))
    assert_close(loaded.logits(), reference.logits() / 2.5, rtol=0, atol=1e-10)


def test_new_labels_are_written(tmp_path: Path) -> None:
    for name in ("vit", "timm"):
        checkpoint = read_checkpoint(build_reference(name).save(tmp_path / name))
        write_stock(replace(checkpoint, labels=tuple("abcde")), tmp_path / f"{name}-back")
        assert read_checkpoint(tmp_path / f"{name}-back").labels == tuple("abcde")
        config = transformers.AutoConfig.from_pretrained(tmp_path / f"{name}-back")
        assert config.id2label == dict(enumerate("abcde"))


def test_several_members_have_no_stock_folder(dense: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="has 2 members"):
        write_stock(fuse([dense, dense]), tmp_path / "back")


def test_positions_of_images_that_are_not_square_have_no_stock_folder(tmp_path: Path) -> None:
    """Transformers reads a table as that of a square, and interpolates it again."""
    folder = build_reference("dinov2").save(tmp_path / "theirs")
    for width, fits in ((24, True), (8, False)):
        (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 24, "width": width}}))
        with nullcontext() if fits else pytest.raises(OptionError, match="6 x 2 patches.*`as_hydra`"):
            write_stock(read_checkpoint(folder), tmp_path / str(width))


@pytest.mark.parametrize("name", ["timm", "open-clip", "vit"])
def test_a_damaged_config_in_a_file_is_refused_by_its_key(name: str, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(build_reference(name).save(tmp_path / "theirs"))

    def export(text: str) -> None:
        config = parse_json(text, Origin("theirs", CheckpointError, "")).fields
        write_stock(replace(checkpoint, config=config), tmp_path / "out", force=True)

    every = 40 if name == "open-clip" else 60
    texts = islice(damages(dict(checkpoint.config)), 0, None, every)
    refusals = [refused(export, "theirs", CheckpointError, text) for text in texts]
    assert any(refusals)
    with pytest.raises(CheckpointError, match="family 'other'"):
        write_stock(replace(checkpoint, family="other"), tmp_path / "out")
