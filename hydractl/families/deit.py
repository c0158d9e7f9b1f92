"""DeiT for image classification, as transformers writes it, with its classifier alone or with the distilled one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hydractl.checkpoint.spec import ModelSpec
from hydractl.families import config as read
from hydractl.families import vit
from hydractl.families.family import Base, Family


def read_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The network a DeiT config.json describes: a ViT with a distillation token, which its classifier ignores."""
    tower = vit.tower(config, distillation_token=True)
    return ModelSpec("image-classification", (tower,), classes=len(read.labels(config)))


def read_distilled_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The same network with a classifier on each of its two tokens."""
    spec = read_spec(config)
    return replace(spec, towers=(replace(spec.towers[0], pool="first+second"),), distilled=True)


TOKEN = {"vision.embeddings.distillation_token": "deit.embeddings.distillation_token:3"}
CLASSIFIERS = {"classifier": "cls_classifier", "distillation_classifier": "distillation_classifier"}
INERT = (r"deit\.pooler\.dense\.(weight|bias)", r"deit\.embeddings\.mask_token")

FAMILY = Family(
    name="deit",
    title="DeiT",
    model_type="deit",
    architectures=("DeiTForImageClassification",),
    read_spec=read_spec,
    spellings=tuple(spelling | TOKEN for spelling in vit.spellings("deit")),
    defaults=vit.DEFAULTS,
    base=Base("deit.", surplus=(r"decoder\..*",)),
    inert=INERT,
)
DISTILLED = Family(
    name="deit-distilled",
    title="DeiT (distilled)",
    model_type="deit",
    architectures=("DeiTForImageClassificationWithTeacher",),
    read_spec=read_distilled_spec,
    spellings=tuple(spelling | TOKEN | CLASSIFIERS for spelling in vit.spellings("deit")),
    defaults=vit.DEFAULTS,
    inert=INERT,
)
