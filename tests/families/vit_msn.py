"""Variants of ViT-MSN."""

from __future__ import annotations

from transformers import ViTMSNConfig, ViTMSNForImageClassification

from hydractl.families.vit_msn import FAMILY
from tests.families import vit
from tests.families.vit import encoder, image_model
from tests.references import Architecture

ARCHITECTURE = Architecture(
    variants={"vit-msn": lambda: image_model(ViTMSNForImageClassification, ViTMSNConfig)},
    typical=("vit-msn",),
    configs=((FAMILY.config, ViTMSNConfig),),
    inert=vit.ARCHITECTURE.inert,
    bases=(("vit-msn", encoder),),
)
