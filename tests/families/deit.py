"""Variants of DeiT."""

from __future__ import annotations

from transformers import DeiTConfig, DeiTForImageClassification, DeiTForImageClassificationWithTeacher

from hydractl.families.vit import DEIT
from tests.families import vit
from tests.families.vit import encoder, image_model, masked_patches
from tests.references import Architecture

ARCHITECTURE = Architecture(
    variants={
        "deit": lambda: image_model(DeiTForImageClassification, DeiTConfig),
        "deit-distilled": lambda: image_model(DeiTForImageClassificationWithTeacher, DeiTConfig),
    },
    typical=("deit", "deit-distilled"),
    configs=((DEIT.config, DeiTConfig),),
    inert=vit.ARCHITECTURE.inert,
    bases=(("deit", encoder), ("deit", masked_patches)),
)
