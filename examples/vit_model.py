"""Writes a small untrained vision transformer as a Hugging Face folder: for CIFAR-10, or for the digits 0 to 5.

python vit_model.py cifar10|digits MODEL_FOLDER
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from digits_data import NAMES as DIGITS
from digits_data import SIDE as DIGIT_SIDE
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor
from transformers.utils.logging import disable_progress_bar

SEED = 0
ANIMALS_AND_VEHICLES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


class Untrained(NamedTuple):
    """An untrained network's classes and settings."""

    names: tuple[str, ...]
    config: dict[str, Any]
    processor: dict[str, Any]


NETWORKS = {
    "cifar10": Untrained(
        ANIMALS_AND_VEHICLES,
        {"image_size": 32, "patch_size": 8, "hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 6,
         "intermediate_size": 768},
        {"image_mean": [0.4914, 0.4822, 0.4465], "image_std": [0.247, 0.2435, 0.2616]},
    ),
    "digits": Untrained(
        DIGITS,
        {"image_size": DIGIT_SIDE, "patch_size": 2, "num_channels": 1, "hidden_size": 64, "num_hidden_layers": 4,
         "num_attention_heads": 4, "intermediate_size": 128},
        {"do_resize": False, "image_mean": [0.5], "image_std": [0.5]},
    ),
}  # fmt: skip


def main(network: Untrained, output: Path) -> None:
    disable_progress_bar()
    torch.manual_seed(SEED)
    labels = dict(enumerate(network.names))
    config = ViTConfig(**network.config, id2label=labels, label2id={name: i for i, name in labels.items()})
    ViTForImageClassification(config).save_pretrained(output)
    size = {"height": config.image_size, "width": config.image_size}
    ViTImageProcessor(size=size, **network.processor).save_pretrained(output)


if __name__ == "__main__":
    main(NETWORKS[sys.argv[1]], Path(sys.argv[2]))
