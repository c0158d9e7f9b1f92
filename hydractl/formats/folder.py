"""A model of any number of members as a folder that transformers loads, with the code that runs it and a model card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydractl.checkpoint.atomic import write_bytes
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.tensors import WEIGHTS_NAME
from hydractl.checkpoint.writer import write_safetensors
from hydractl.formats.card import model_card
from hydractl.formats.code import write_code
from hydractl.formats.stock import label_fields, to_json

#: By task: the class in modeling_hydra.py, and the automatic class of transformers that finds it.
CLASSES = {
    "image-classification": ("HydraForImageClassification", "AutoModelForImageClassification"),
    "text-classification": ("HydraForSequenceClassification", "AutoModelForSequenceClassification"),
    "zero-shot": ("HydraForZeroShotImageClassification", "AutoModelForZeroShotImageClassification"),
}


def write_hydra(
    checkpoint: Checkpoint, folder: Path, report: Mapping[str, Any] | None = None, force: bool = False
) -> None:
    """Writes a model with its weights as they are, one tensor in memory at a time.

    Args:
        report: a report of `hydractl evaluate`, whose results go into the model card.

    Raises:
        OutputError: a file exists and `force` is not set, or the disk refuses it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "config.json", to_json(hydra_config(checkpoint)), force)
    for name, content in checkpoint.preprocessing.items():
        write_bytes(folder / name, content.encode() if isinstance(content, str) else to_json(content), force)
    write_code(folder, force)
    write_bytes(folder / "README.md", model_card(checkpoint, report, CLASSES[checkpoint.spec.task][1]).encode(), force)
    tensors = {f"hydra.{name}": tensor for name, tensor in checkpoint.tensors.items()}
    write_safetensors(folder / WEIGHTS_NAME, tensors, {"format": "pt"}, force)


def hydra_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """The config.json of the folder."""
    model, automatic = CLASSES[checkpoint.spec.task]
    dtype = str(checkpoint.dtype).removeprefix("torch.")
    config: dict[str, Any] = {
        "model_type": "hydra",
        "architectures": [model],
        "auto_map": {"AutoConfig": "configuration_hydra.HydraConfig", automatic: f"modeling_hydra.{model}"},
        "dtype": dtype,
        "hydra": {
            "spec": asdict(checkpoint.spec),
            "heads": {tower: [list(map(list, layer)) for layer in kept] for tower, kept in checkpoint.heads.items()},
            "separate": sorted(checkpoint.tensors.keys() - checkpoint.shared),
            "temperature": checkpoint.temperature,
        },
    }
    settings = checkpoint.preprocessing.get("preprocessor_config.json", {})
    if "pretrained_cfg" in settings:
        # The image processor that runs timm's transforms reads its settings here.
        config |= settings
    return config | (label_fields(checkpoint.labels) if checkpoint.labels is not None else {})
