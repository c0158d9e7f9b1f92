"""DeiT for image classification, as transformers writes it, with its classifier alone or with the distilled one."""

from __future__ import annotations

from dataclasses import replace

from hydractl.checkpoint.spec import ImageEmbeddings, ModelSpec
from hydractl.families import vit
from hydractl.families.family import Base, Family


class Config(vit.Config):
    """The fields of a DeiT's config.json."""

    def embeddings(self, patch_bias: bool = True, norm: bool = False) -> ImageEmbeddings:
        # A DeiT without its distilled classifier ignores the distillation token in the end.
        return replace(super().embeddings(patch_bias, norm), distillation_token=True)


class DistilledConfig(Config):
    """The same fields, of a network with a classifier on each of its two tokens."""

    def spec(self) -> ModelSpec:
        spec = super().spec()
        return replace(spec, towers=(replace(spec.towers[0], pool="first+second"),), distilled=True)


TOKEN = {"vision.embeddings.distillation_token": "deit.embeddings.distillation_token:3"}
CLASSIFIERS = {"classifier": "cls_classifier", "distillation_classifier": "distillation_classifier"}
INERT = (r"deit\.pooler\.dense\.(weight|bias)", r"deit\.embeddings\.mask_token")

FAMILY = Family(
    name="deit",
    title="DeiT",
    model_type="deit",
    architectures=("DeiTForImageClassification",),
    config=Config,
    spellings=tuple(spelling | TOKEN for spelling in vit.spellings("deit")),
    base=Base("deit.", surplus=(r"decoder\..*",)),
    inert=INERT,
)
DISTILLED = Family(
    name="deit-distilled",
    title="DeiT (distilled)",
    model_type="deit",
    architectures=("DeiTForImageClassificationWithTeacher",),
    config=DistilledConfig,
    spellings=tuple(spelling | TOKEN | CLASSIFIERS for spelling in vit.spellings("deit")),
    inert=INERT,
)
