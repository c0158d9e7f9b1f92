"""SigLIP's image tower with a classifier, as transformers writes it (`SiglipForImageClassification`)."""

from __future__ import annotations

from dataclasses import replace

from pydantic import model_validator

from hydractl.checkpoint.spec import Activation, ModelSpec
from hydractl.families import clip
from hydractl.families import config as read
from hydractl.families.family import Base, Family


class VisionTower(clip.VisionTower):
    """The fields under `vision_config`."""

    hidden_act: Activation = "gelu_pytorch_tanh"
    layer_norm_eps: read.NormEps = 1e-6
    patch_size: read.PatchSize = (16, 16)


class Config(read.Labelled):
    """The fields of a SigLIP's config.json."""

    vision_config: VisionTower

    complete = model_validator(mode="before")(clip.complete)

    def spec(self) -> ModelSpec:
        part = self.vision_config
        embeddings = replace(part.embeddings(), class_token=False)
        tower = part.tower("vision", embeddings, part.intermediate_size, dropouts=(None, part.attention_dropout))
        tower = replace(tower, pool="mean", norm_tokens=True)
        return ModelSpec("image-classification", (tower,), classes=len(self.labels))


FAMILY = Family(
    name="siglip",
    title="SigLIP image classifier",
    model_type="siglip",
    architectures=("SiglipForImageClassification",),
    config=Config,
    spellings=(
        {
            "vision.embeddings.patch": "vision_model.embeddings.patch_embedding",
            "vision.embeddings.position": "vision_model.embeddings.position_embedding.weight",
            **clip.layers("vision"),
            "vision.norm": "vision_model.post_layernorm",
            "classifier": "classifier",
        },
    ),
    base=Base(
        "vision_model.",
        surplus=(r"text_model\..*", "logit_scale", "logit_bias"),
        model_type="siglip_vision_model",
        part="vision_config",
    ),
    refused={"SiglipModel": "pools with an attention of its own, which is not supported"},
    # The zero-shot model pools with the head; the classifier bypasses it.
    inert=(r"vision_model\.head\..*", r"vision_model\.embeddings\.position_ids"),
)
