"""Importing this module makes transformers load exported Hydra folders: its automatic classes, `pipeline`, `Trainer`.

import hydractl.auto
from transformers import AutoModelForImageClassification

model = AutoModelForImageClassification.from_pretrained("folder")

The pipelines of transformers return labels and scores alone. With `pipeline_class=hydractl.auto.ImagePipeline` (or
`TextPipeline`) a calibrated model says beside them how typical the input is, and whether it looks OOD.
"""

from typing import Any

import transformers

from hydractl.exports import modeling
from hydractl.exports.configuration import HydraConfig
from hydractl.exports.folder import CLASSES

transformers.AutoConfig.register(HydraConfig.model_type, HydraConfig, exist_ok=True)
for model, automatic in CLASSES.values():
    getattr(transformers, automatic).register(HydraConfig, getattr(modeling, model), exist_ok=True)


class _Typical:
    """Adds the typicality and the flag of the input to each of its labels."""

    def postprocess(self, model_outputs: Any, **kwargs: Any) -> Any:
        found = super().postprocess(model_outputs, **kwargs)  # type: ignore[misc]
        typical = model_outputs.get("typicality")
        if typical is not None:
            own = {"typicality": typical.item(), "ood": self.model.hydra.ood_head.flags(typical).item()}  # type: ignore[attr-defined]
            for row in found if isinstance(found, list) else [found]:
                row.update(own)
        return found


class ImagePipeline(_Typical, transformers.ImageClassificationPipeline):  # type: ignore[misc]
    """Classifies images."""


class TextPipeline(_Typical, transformers.TextClassificationPipeline):  # type: ignore[misc]
    """Classifies texts."""
