"""Writes an untrained ViT for CIFAR-10 as a Hugging Face folder: 6 layers of 6 heads, on patches of 8 x 8 pixels.

python cifar10_model.py MODEL_FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor
from transformers.utils.logging import disable_progress_bar

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN, DEVIATION = [0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]
SIDE, SEED = 32, 0


def main(output: Path) -> None:
    disable_progress_bar()
    torch.manual_seed(SEED)
    config = ViTConfig(
        image_size=SIDE,
        patch_size=8,
        hidden_size=192,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=768,
        id2label=dict(enumerate(NAMES)),
        label2id={name: i for i, name in enumerate(NAMES)},
    )
    ViTForImageClassification(config).save_pretrained(output)
    processor = ViTImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=MEAN, image_std=DEVIATION)
    processor.save_pretrained(output)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
