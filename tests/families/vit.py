"""Variants of ViT and ViT-MSN."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModel,
    AutoModelForMaskedImageModeling,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
    ViTMSNConfig,
    ViTMSNForImageClassification,
)

from hydractl.families.vit import MSN, VIT
from tests import references
from tests.references import BATCH, SIZES, Architecture, Built


def image_model(model: Any = ViTForImageClassification, config: Any = ViTConfig, **changes: Any) -> Built:
    """A classifier of images and a batch of them."""
    built = config(num_labels=references.CLASSES, **{"image_size": 12, "patch_size": 4, **SIZES, **changes})
    size = built.image_size if isinstance(built.image_size, list | tuple) else (built.image_size,) * 2
    return model(built), {"pixel_values": torch.randn(BATCH, built.num_channels, *size)}


def encoder(classifier: PreTrainedModel) -> PreTrainedModel:
    """The network inside a classifier, without it."""
    return AutoModel.from_config(classifier.config)


def masked_patches(classifier: PreTrainedModel) -> PreTrainedModel:
    """The network with a decoder of masked patches."""
    classifier.config.encoder_stride = classifier.config.patch_size
    return AutoModelForMaskedImageModeling.from_config(classifier.config)


ARCHITECTURE = Architecture(
    variants={
        "vit": image_model,
        "vit-one-channel": lambda: image_model(num_channels=1),
        "vit-wide-image": lambda: image_model(image_size=[8, 12], patch_size=[4, 2]),
        "vit-no-qkv-bias": lambda: image_model(qkv_bias=False),
        "vit-quick-gelu": lambda: image_model(hidden_act="quick_gelu", layer_norm_eps=1e-3),
        "vit-msn": lambda: image_model(ViTMSNForImageClassification, ViTMSNConfig),
    },
    typical=("vit", "vit-msn"),
    configs=((VIT.config, ViTConfig), (MSN.config, ViTMSNConfig)),
    inert=frozenset({"encoder_stride", "pooler_output_size", "pooler_act"}),  # of parts that a classifier lacks
    bases=(("vit", encoder), ("vit", masked_patches), ("vit-msn", encoder)),
)
