"""Importing this module makes transformers load exported Hydra folders: its automatic classes, `pipeline`, `Trainer`.

import hydractl.auto
from transformers import AutoModelForImageClassification

model = AutoModelForImageClassification.from_pretrained("folder")
"""

from __future__ import annotations

import transformers

from hydractl.exports import modeling
from hydractl.exports.configuration import HydraConfig
from hydractl.exports.folder import CLASSES

transformers.AutoConfig.register(HydraConfig.model_type, HydraConfig, exist_ok=True)
for model, automatic in CLASSES.values():
    getattr(transformers, automatic).register(HydraConfig, getattr(modeling, model), exist_ok=True)
