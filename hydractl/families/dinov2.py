"""DINOv2 with a classifier, as transformers writes it, with registers or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hydractl.checkpoint.spec import ModelSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family

DEFAULTS = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "mlp_ratio": 4,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "layer_norm_eps": 1e-6,
    "image_size": 224,
    "patch_size": 14,
    "num_channels": 3,
    "qkv_bias": True,
}


def read_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The network a DINOv2 config.json describes: class token and mean patch, side by side, are classified."""
    registers = config.get("num_register_tokens", 0)
    embeddings = replace(read.image_embeddings(config), registers=registers, unplaced=registers)
    mlp_width = int(read.integer(config, "hidden_size") * config["mlp_ratio"])
    tower = replace(
        read.encoder({**config, "intermediate_size": mlp_width}, "vision", embeddings),
        qkv_bias=bool(config["qkv_bias"]),
        norm_tokens=True,
        layer_scale=True,
        pool="first+mean",
    )
    return ModelSpec("image-classification", (tower,), classes=len(read.labels(config)))


def spellings(model: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the tensors of the encoder `model` are called as saved, and what they are called in memory."""
    ours, theirs = "vision.layers.{i}.", f"{model}.encoder.layer.{{i}}."
    common = {
        "vision.embeddings.patch": f"{model}.embeddings.patch_embeddings.projection",
        "vision.embeddings.class_token": f"{model}.embeddings.cls_token:3",
        "vision.embeddings.registers": f"{model}.embeddings.register_tokens:3",
        "vision.embeddings.position": f"{model}.embeddings.position_embeddings:3",
        ours + "attention_norm": theirs + "norm1",
        ours + "attention_scale": theirs + "layer_scale1.lambda1",
        ours + "mlp.fc1": theirs + "mlp.fc1",
        ours + "mlp.fc2": theirs + "mlp.fc2",
        ours + "mlp_norm": theirs + "norm2",
        ours + "mlp_scale": theirs + "layer_scale2.lambda1",
        "vision.norm": f"{model}.layernorm",
        "classifier": "classifier",
    }
    return (
        common
        | {
            ours + "attention.q": theirs + "attention.attention.query",
            ours + "attention.k": theirs + "attention.attention.key",
            ours + "attention.v": theirs + "attention.attention.value",
            ours + "attention.o": theirs + "attention.output.dense",
        },
        common
        | {
            ours + "attention.q": theirs + "attention.q_proj",
            ours + "attention.k": theirs + "attention.k_proj",
            ours + "attention.v": theirs + "attention.v_proj",
            ours + "attention.o": theirs + "attention.o_proj",
        },
    )


FAMILY = Family(
    name="dinov2",
    title="DINOv2",
    model_type="dinov2",
    architectures=("Dinov2ForImageClassification",),
    read_spec=read_spec,
    spellings=spellings("dinov2"),
    defaults=DEFAULTS,
    demanded={"use_swiglu_ffn": False},
    base=Base("dinov2."),
    inert=(r"dinov2\.embeddings\.mask_token",),
)
WITH_REGISTERS = Family(
    name="dinov2-registers",
    title="DINOv2 with registers",
    model_type="dinov2_with_registers",
    architectures=("Dinov2WithRegistersForImageClassification",),
    read_spec=read_spec,
    spellings=spellings("dinov2_with_registers"),
    defaults=DEFAULTS | {"num_register_tokens": 4, "patch_size": 16},
    demanded={"use_swiglu_ffn": False},
    base=Base("dinov2_with_registers."),
    inert=(r"dinov2_with_registers\.embeddings\.mask_token",),
)
