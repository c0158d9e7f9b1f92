"""ViT for image classification, as transformers writes it (`ViTForImageClassification`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydractl.checkpoint.spec import ImageEmbeddings, ModelSpec, TowerSpec
from hydractl.families import config as read
from hydractl.families.family import Family

DEFAULTS = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "layer_norm_eps": 1e-12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "qkv_bias": True,
}


def read_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The network a ViT config.json describes."""
    width, heads = read.integer(config, "hidden_size"), read.integer(config, "num_attention_heads")
    tower = TowerSpec(
        name="vision",
        layers=read.integer(config, "num_hidden_layers"),
        heads=heads,
        head_width=read.head_width(config, width, heads),
        width=width,
        mlp_width=read.integer(config, "intermediate_size"),
        activation=read.activation(config),
        norm_eps=config["layer_norm_eps"],
        embeddings=ImageEmbeddings(
            channels=read.integer(config, "num_channels"),
            image_size=read.pair(config, "image_size"),
            patch_size=read.pair(config, "patch_size"),
            patch_bias=True,
            norm=False,
        ),
        qkv_bias=bool(config["qkv_bias"]),
        dropout=read.rate(config, "hidden_dropout_prob"),
        attention_dropout=read.rate(config, "attention_probs_dropout_prob"),
    )
    return ModelSpec("image-classification", (tower,), classes=len(read.labels(config)))


OUTSIDE = {
    "vision.embeddings.patch": "vit.embeddings.patch_embeddings.projection",
    "vision.embeddings.class_token": "vit.embeddings.cls_token",
    "vision.embeddings.position": "vit.embeddings.position_embeddings",
    "vision.norm": "vit.layernorm",
    "classifier": "classifier",
}
SAVED = "vit.encoder.layer.{i}."  # what save_pretrained writes
IN_MEMORY = "vit.layers.{i}."

FAMILY = Family(
    name="vit",
    title="ViT",
    model_type="vit",
    architectures=("ViTForImageClassification",),
    read_spec=read_spec,
    spellings=(
        OUTSIDE
        | {
            "vision.layers.{i}.attention.q": SAVED + "attention.attention.query",
            "vision.layers.{i}.attention.k": SAVED + "attention.attention.key",
            "vision.layers.{i}.attention.v": SAVED + "attention.attention.value",
            "vision.layers.{i}.attention.o": SAVED + "attention.output.dense",
            "vision.layers.{i}.attention_norm": SAVED + "layernorm_before",
            "vision.layers.{i}.mlp.fc1": SAVED + "intermediate.dense",
            "vision.layers.{i}.mlp.fc2": SAVED + "output.dense",
            "vision.layers.{i}.mlp_norm": SAVED + "layernorm_after",
        },
        OUTSIDE
        | {
            "vision.layers.{i}.attention.q": IN_MEMORY + "attention.q_proj",
            "vision.layers.{i}.attention.k": IN_MEMORY + "attention.k_proj",
            "vision.layers.{i}.attention.v": IN_MEMORY + "attention.v_proj",
            "vision.layers.{i}.attention.o": IN_MEMORY + "attention.o_proj",
            "vision.layers.{i}.attention_norm": IN_MEMORY + "layernorm_before",
            "vision.layers.{i}.mlp.fc1": IN_MEMORY + "mlp.fc1",
            "vision.layers.{i}.mlp.fc2": IN_MEMORY + "mlp.fc2",
            "vision.layers.{i}.mlp_norm": IN_MEMORY + "layernorm_after",
        },
    ),
    defaults=DEFAULTS,
    # Some released checkpoints carry the pooler or the mask token of the pre-training model; a classifier uses neither.
    inert=(r"vit\.pooler\.dense\.(weight|bias)", r"vit\.embeddings\.mask_token"),
)
