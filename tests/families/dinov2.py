"""Variants of DINOv2."""

from __future__ import annotations

from typing import Any

from transformers import (
    Dinov2Config,
    Dinov2ForImageClassification,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersForImageClassification,
)

from hydractl.families.vit import DINOV2, DINOV2_WITH_REGISTERS
from tests.families.vit import encoder, image_model
from tests.references import Architecture, Built


def dinov2(**changes: Any) -> Built:
    return image_model(Dinov2ForImageClassification, Dinov2Config, **changes)


def with_registers() -> Built:
    return image_model(Dinov2WithRegistersForImageClassification, Dinov2WithRegistersConfig, num_register_tokens=3)


ARCHITECTURE = Architecture(
    variants={
        "dinov2": dinov2,
        "dinov2-two-channels-no-qkv-bias": lambda: dinov2(num_channels=2, qkv_bias=False, mlp_ratio=3),
        "dinov2-registers": with_registers,
    },
    typical=("dinov2", "dinov2-registers"),
    configs=(
        (DINOV2.config, Dinov2Config),
        (DINOV2_WITH_REGISTERS.config, Dinov2WithRegistersConfig),
    ),
    inert=frozenset(
        {"layerscale_value", "drop_path_rate"}  # before training, and in it
        | {"use_mask_token", "apply_layernorm", "reshape_hidden_states", "_out_features", "_out_indices"}  # other tasks
    ),
    bases=(("dinov2", encoder), ("dinov2-registers", encoder)),
)
