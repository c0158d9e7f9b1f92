"""Importing this module makes transformers load exported Hydra folders: its automatic classes, `pipeline`, `Trainer`.

import hydractl.auto
from transformers import AutoModelForImageClassification

model = AutoModelForImageClassification.from_pretrained("folder")

The pipelines of transformers return labels and scores alone. With `pipeline_class=hydractl.auto.ImagePipeline` (or
`TextPipeline`) a calibrated model says beside them how typical the input is, whether it looks OOD, and which classes
are in its set.
"""

import base64
import os
from typing import Any

import transformers
from huggingface_hub import get_session

from hydractl.data.images import with_channels
from hydractl.exports import modeling
from hydractl.exports.configuration import HydraConfig
from hydractl.tasks.all_tasks import TASKS

transformers.AutoConfig.register(HydraConfig.model_type, HydraConfig, exist_ok=True)
for task in TASKS:
    getattr(transformers, task.names.automatic).register(
        HydraConfig, getattr(modeling, task.names.model), exist_ok=True
    )


class _Typical:
    """Adds the typicality, the flag and the set of the input to each of its labels."""

    def postprocess(self, model_outputs: Any, **kwargs: Any) -> Any:
        answer = super().postprocess(model_outputs, **kwargs)  # type: ignore[misc]
        typical, added, model = model_outputs.get("typicality"), dict[str, Any](), self.model  # type: ignore[attr-defined]
        if typical is not None:
            added |= {"typicality": typical.item(), "ood": model.hydra.ood_head.flags(typical).item()}
        if model_outputs.get("profile") is not None:
            added["profile"] = model_outputs["profile"].squeeze(0).tolist()
        if model_outputs.get("sets") is not None:
            order = model_outputs["logits"][0].argsort(descending=True, stable=True).tolist()
            added["set"] = [model.config.id2label[place] for place in order if model_outputs["sets"][0, place]]
        for row in answer if isinstance(answer, list) else [answer]:
            row.update(added)
        return answer


class ImagePipeline(_Typical, transformers.ImageClassificationPipeline):  # type: ignore[misc]
    """Classifies images, read as hydractl reads them: paths, URLs, base64, images of Pillow, arrays."""

    def preprocess(self, image: Any, timeout: float | None = None) -> Any:  # type: ignore[override]
        if isinstance(image, str) and not os.path.isfile(image):
            image = _fetched(image, timeout)
        pipeline: Any = self  # what transformers' classes have is untyped
        channels = pipeline.model.hydra.spec.towers[0].embeddings.channels
        pixels = pipeline.image_processor(images=[with_channels(image, channels)], return_tensors="pt")
        return pixels.to(pipeline.dtype)


def _fetched(text: str, timeout: float | None) -> bytes | str:
    """Returns the image file that a URL names or base64 spells, as the pipelines of transformers take them."""
    if text.startswith(("http://", "https://")):
        return get_session().get(text, timeout=timeout).raise_for_status().content
    try:
        return base64.b64decode("".join(text.rpartition(",")[2].split()), validate=True)
    except ValueError:
        return text  # the path of no file, as its error will say


class TextPipeline(_Typical, transformers.TextClassificationPipeline):  # type: ignore[misc]
    """Classifies texts."""
