"""Small ViTs with random weights, and photographs that are far from digits: what the tables of tasks share."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor, set_seed

SIDE = 16  # pixels of an image


def photographs(count: int) -> datasets.Dataset:
    """Grey patches of photographs, which show no digit."""
    draw, rows = np.random.default_rng(9), []
    grey = [Image.fromarray(one).convert("L").reduce(4) for one in load_sample_images().images]
    for _ in range(count):
        whole = grey[draw.integers(len(grey))]
        left, top = draw.integers(whole.width - SIDE), draw.integers(whole.height - SIDE)
        rows.append(whole.crop((left, top, left + SIDE, top + SIDE)))
    return datasets.Dataset.from_dict({"image": rows}).cast_column("image", datasets.Image())


def untrained(folder: Path, seed: int, **answers: Any) -> Path:
    """A ViT of 4 layers of 4 heads as transformers writes it; `answers` are its config's fields of a task."""
    set_seed(seed)
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 128}
    ViTForImageClassification(ViTConfig(image_size=SIDE, patch_size=4, **sizes, **answers)).save_pretrained(folder)
    ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)
    return folder
