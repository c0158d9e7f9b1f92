"""CLIP as transformers writes it: zero-shot with two towers (`CLIPModel`), or its image tower with a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from hydractl.checkpoint.spec import ImageEmbeddings, ModelSpec, TextEmbeddings, TowerSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family

LAYER_DEFAULTS = {
    "num_hidden_layers": 12,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
    "attention_dropout": 0.0,
}
VISION_DEFAULTS = LAYER_DEFAULTS | {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
}
TEXT_DEFAULTS = LAYER_DEFAULTS | {
    "vocab_size": 49408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "eos_token_id": 49407,
}
LEGACY_EOS = 2  # configs written before transformers fixed the field: their models pool the largest id instead


def read_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The network a CLIP config.json describes."""
    text = part(config, "text_config", TEXT_DEFAULTS)
    text_embeddings = TextEmbeddings(
        vocabulary=read.integer(text, "vocab_size"),
        positions=read.integer(text, "max_position_embeddings"),
        token_types=0,
        norm=False,
        eos=None if text["eos_token_id"] == LEGACY_EOS else read.integer(text, "eos_token_id"),
    )
    return ModelSpec(
        "zero-shot",
        (_vision_tower(config), tower("text", text, text_embeddings)),
        projection=read.integer(config, "projection_dim"),
    )


def read_image_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The image tower with a classifier, which reads the mean patch before the last norm."""
    vision = replace(_vision_tower(config), pool="mean", final_norm=False)
    return ModelSpec("image-classification", (vision,), classes=len(read.labels(config)))


def _vision_tower(config: Mapping[str, Any]) -> TowerSpec:
    vision = part(config, "vision_config", VISION_DEFAULTS)
    return tower("vision", vision, read.image_embeddings(vision, patch_bias=False, norm=True))


def part(config: Mapping[str, Any], key: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The config of one tower, complete."""
    # Early CLIP configs repeat each part under `..._config_dict`, and that copy wins in transformers.
    return {**defaults, **(config.get(key) or {}), **(config.get(f"{key}_dict") or {})}


def tower(
    name: Literal["vision", "text"], part: Mapping[str, Any], embeddings: ImageEmbeddings | TextEmbeddings
) -> TowerSpec:
    """The tower that a part's config describes."""
    encoder = read.encoder(part, name, embeddings, dropout=None, attention_dropout="attention_dropout")
    return replace(encoder, causal=name == "text", pool="eos" if name == "text" else "first")


def layers(tower: str) -> dict[str, str]:
    """What transformers calls the tensors of a tower's layers."""
    ours, theirs = f"{tower}.layers.{{i}}.", f"{tower}_model.encoder.layers.{{i}}."
    return {
        ours + "attention.q": theirs + "self_attn.q_proj",
        ours + "attention.k": theirs + "self_attn.k_proj",
        ours + "attention.v": theirs + "self_attn.v_proj",
        ours + "attention.o": theirs + "self_attn.out_proj",
        ours + "attention_norm": theirs + "layer_norm1",
        ours + "mlp.fc1": theirs + "mlp.fc1",
        ours + "mlp.fc2": theirs + "mlp.fc2",
        ours + "mlp_norm": theirs + "layer_norm2",
    }


VISION = {
    "vision.embeddings.patch": "vision_model.embeddings.patch_embedding",
    "vision.embeddings.class_token": "vision_model.embeddings.class_embedding",
    "vision.embeddings.position": "vision_model.embeddings.position_embedding.weight",
    "vision.embeddings.norm": "vision_model.pre_layrnorm",
    **layers("vision"),
}

FAMILY = Family(
    name="clip",
    title="CLIP",
    model_type="clip",
    architectures=("CLIPModel",),
    read_spec=read_spec,
    spellings=(
        {
            **VISION,
            "vision.norm": "vision_model.post_layernorm",
            "text.embeddings.word": "text_model.embeddings.token_embedding.weight",
            "text.embeddings.position": "text_model.embeddings.position_embedding.weight",
            **layers("text"),
            "text.norm": "text_model.final_layer_norm",
            "vision.projection": "visual_projection",
            "text.projection": "text_projection",
            "logit_scale": "logit_scale",
        },
    ),
    defaults={"projection_dim": 512},
    task="zero-shot",
    inert=(r"(vision|text)_model\.embeddings\.position_ids",),
)
IMAGE = Family(
    name="clip-image",
    title="CLIP image classifier",
    model_type="clip",
    architectures=("CLIPForImageClassification",),
    read_spec=read_image_spec,
    spellings=(VISION | {"classifier": "classifier"},),
    defaults={},
    base=Base(
        "vision_model.",
        surplus=(r"text_model\..*", r"(visual|text)_projection\.weight", "logit_scale"),
        model_type="clip_vision_model",
        part="vision_config",
    ),
    # The norm that only the class token goes through, which this classifier does not read.
    inert=(r"vision_model\.post_layernorm\.(weight|bias)", *FAMILY.inert),
)
