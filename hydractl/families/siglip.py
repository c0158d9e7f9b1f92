"""SigLIP's image tower with a classifier, as transformers writes it (`SiglipForImageClassification`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hydractl.checkpoint.spec import ModelSpec
from hydractl.families import clip
from hydractl.families import config as read
from hydractl.families.family import Base, Family

VISION_DEFAULTS = clip.VISION_DEFAULTS | {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "patch_size": 16}


def read_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The network a SigLIP config.json describes: no class token, the classifier reads the mean patch."""
    vision = clip.part(config, "vision_config", VISION_DEFAULTS)
    embeddings = replace(read.image_embeddings(vision), class_token=False)
    tower = replace(clip.tower("vision", vision, embeddings), pool="mean", norm_tokens=True)
    return ModelSpec("image-classification", (tower,), classes=len(read.labels(config)))


FAMILY = Family(
    name="siglip",
    title="SigLIP image classifier",
    model_type="siglip",
    architectures=("SiglipForImageClassification",),
    read_spec=read_spec,
    spellings=(
        {
            "vision.embeddings.patch": "vision_model.embeddings.patch_embedding",
            "vision.embeddings.position": "vision_model.embeddings.position_embedding.weight",
            **clip.layers("vision"),
            "vision.norm": "vision_model.post_layernorm",
            "classifier": "classifier",
        },
    ),
    defaults={},
    base=Base(
        "vision_model.",
        surplus=(r"text_model\..*", "logit_scale", "logit_bias"),
        model_type="siglip_vision_model",
        part="vision_config",
    ),
    refused={"SiglipModel": "pools with an attention of its own, which is not built here"},
    # The pooling of the zero-shot model, which the classifier goes round.
    inert=(r"vision_model\.head\..*", r"vision_model\.embeddings\.position_ids"),
)
