import json
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import pytest
import torch

from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import CheckpointError
from hydractl.families import FAMILIES, Family
from hydractl.families.config import config_origin, read_config
from hydractl.families.convert import model_spec
from hydractl.families.family import Source, read_from
from hydractl.families.load import find_family, read_checkpoint
from hydractl.families.timm_config import Foreign
from hydractl.schema import Schema, parse_json
from tests.conftest import build_reference
from tests.damage import edit_json, refuse_all, refused

LABELS = {"num_labels": 2, "id2label": {"0": "cat", "1": "dog"}, "problem_type": "single_label_classification"}


def written_out(kind: type[Schema]) -> dict[str, Any]:
    """A config with every field that a schema has, at its default."""
    hints = get_type_hints(kind)
    return {field.name: _value(hints[field.name], field.default) for field in fields(kind)}


def _value(kind: Any, default: Any) -> Any:
    options = [option for option in get_args(kind) if option is not NoneType] if isinstance(kind, UnionType) else [kind]
    if isinstance(options[0], type) and issubclass(options[0], Schema):
        return written_out(options[0])
    return list(default) if isinstance(default, tuple) else default


def content(family: Family) -> dict[str, Any]:
    config = {"model_type": family.model_type, "architectures": list(family.architectures)}
    config |= written_out(family.config)
    config |= {name: value for name, value in LABELS.items() if name in config}
    if family.name == "open-clip":
        config["model_cfg"]["embed_dim"] = 512
    return config


def read(family: Family, text: str) -> ModelSpec:
    config = parse_json(text, config_origin("model")).fields
    find_family("model", config)
    return model_spec("model", family, config)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.library != "timm"], ids=lambda f: f.name)
def test_every_damage_to_every_field(family: Family) -> None:
    share = refuse_all(lambda text: read(family, text), "model", CheckpointError, content(family))
    assert share > 0.5


def test_every_damage_to_what_timm_is_asked_for() -> None:
    def read_fields(text: str) -> Foreign:
        return read_config("model", parse_json(text, config_origin("model")).fields, Foreign)

    config = written_out(Foreign) | LABELS | {"architecture": "vit_tiny_patch16_224"}
    assert refuse_all(read_fields, "model", CheckpointError, config) > 0.5


@pytest.mark.parametrize(("name", "every"), [("vit", 9), ("clip-image", 9), ("open-clip", 5), ("timm", 25)])
def test_damaged_folders(name: str, every: int, tmp_path: Path) -> None:
    folder = build_reference(name).save(tmp_path)
    path = next(folder.glob("*config.json"))

    def open_damaged(text: str) -> None:
        path.write_text(text, encoding="utf-8")
        read_checkpoint(folder)

    refuse_all(open_damaged, str(folder), CheckpointError, json.loads(path.read_text()), every)
    with pytest.raises(CheckpointError, match="cannot be read"):
        path.write_bytes(b"\xff\xfe{}")
        read_checkpoint(folder)


HUGE: dict[str, dict[str, Any]] = {
    "depth": {"model_args": {"depth": 10**6}},
    "width": {"model_args": {"embed_dim": 10**9}},
    "image": {"model_args": {"img_size": 10**6}},
    "image of the weights": {"pretrained_cfg": {"input_size": [3, 10**6, 10**6], "fixed_input_size": True}},
    "classes": {"num_classes": 10**9},
    "device": {"model_args": {"device": "cpu"}},
    "weights": {"model_args": {"checkpoint_path": "/etc/passwd"}},
    "unknown": {"architecture": "no_such_model"},
    "address": {"architecture": "hf-hub:somebody/something"},
    "other": {"architecture": "swin_tiny_patch4_window7_224"},
}


@pytest.mark.parametrize("case", HUGE)
def test_timm_is_not_asked_for_what_is_not_supported(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build_reference("timm").save(tmp_path)
    edit_json(folder / "config.json", **HUGE[case])
    monkeypatch.setattr("timm.create_model", lambda *args, **kwargs: pytest.fail("asked timm"))
    assert refused(lambda _: read_checkpoint(folder), str(folder), CheckpointError, "")


@pytest.mark.parametrize("labels", [{"0": "a", "2": "b"}, {"1": "a"}, {"0": "a", "01": "b"}, {"0": "a", "x": "b"}])
def test_labels_are_numbered_from_zero_without_a_gap(labels: dict[str, str]) -> None:
    vit = next(family for family in FAMILIES if family.name == "vit")
    with pytest.raises(CheckpointError, match="id2label"):
        read(vit, json.dumps(content(vit) | {"id2label": labels}))


@pytest.mark.parametrize("shape", [(7, 4), (), (2, 3, 4)])
@pytest.mark.parametrize("source", [Source("proj", 1, 3), Source("proj", transposed=True)])
def test_a_tensor_that_cannot_be_divided_or_transposed(source: Source, shape: tuple[int, ...]) -> None:
    tensor = LazyTensor(shape, "F32", lambda: torch.zeros(shape))
    if source.transposed and len(shape) == 2:
        assert read_from("model", source, tensor).shape == shape[::-1]
        return
    with pytest.raises(CheckpointError, match="model: proj has shape"):
        read_from("model", source, tensor)
