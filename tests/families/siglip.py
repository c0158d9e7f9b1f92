"""Variants of SigLIP."""

from __future__ import annotations

from transformers import SiglipConfig, SiglipForImageClassification, SiglipVisionConfig

from hydractl.families.clip import SIGLIP, SiglipVisionTower
from tests.families.clip import image_tower
from tests.families.vit import encoder
from tests.references import Architecture

ARCHITECTURE = Architecture(
    variants={"siglip": lambda: image_tower(SiglipForImageClassification, SiglipConfig)},
    typical=("siglip",),
    configs=((SiglipVisionTower, SiglipVisionConfig), (SIGLIP.config, SiglipConfig)),
    inert=frozenset({"vision_config", "text_config", "vision_use_head"}),  # read one by one; of the zero-shot model
    bases=(("siglip", encoder),),
)
