"""Writes a small untrained vision transformer for the digits 0 to 5 as a Hugging Face folder.

python digits_model.py MODEL_FOLDER
"""

import sys
from pathlib import Path

import torch
from digits_data import NAMES, SIDE
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor
from transformers.utils.logging import disable_progress_bar

SEED = 0


def main(output: Path) -> None:
    disable_progress_bar()
    torch.manual_seed(SEED)
    config = ViTConfig(
        image_size=SIDE,
        patch_size=2,
        num_channels=1,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        id2label=dict(enumerate(NAMES)),
        label2id={name: i for i, name in enumerate(NAMES)},
    )
    ViTForImageClassification(config).save_pretrained(output)
    size = {"height": SIDE, "width": SIDE}
    ViTImageProcessor(do_resize=False, size=size, image_mean=[0.5], image_std=[0.5]).save_pretrained(output)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
