"""Trains a small vision transformer on the digits 0 to 5 and writes it as a Hugging Face folder.

python digits_train.py DATA_FOLDER MODEL_FOLDER [STEPS]
"""

import sys
from pathlib import Path

import numpy as np
import torch
from digits_data import NAMES, SIDE
from PIL import Image
from torch.nn.functional import cross_entropy
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor
from transformers.utils.logging import disable_progress_bar

STEPS = 3000
BATCH = 64
WARM_UP = 100
RATE = 1e-3
SEED = 0


def read(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """The images of a split as [N,1,8,8] in -1..1, as the processor written below makes them, and their labels [N]."""
    files = [sorted((folder / name).glob("*.png")) for name in NAMES]
    pixels = np.stack([np.asarray(Image.open(file)) for of_class in files for file in of_class])
    labels = torch.tensor([label for label, of_class in enumerate(files) for _ in of_class])
    return torch.from_numpy(pixels).float().div(127.5).sub(1).unsqueeze(1), labels


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Each image moved by up to one pixel each way: 650 images are few, and a digit may stand anywhere."""
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1), value=-1)
    windows = padded.unfold(2, SIDE, 1).unfold(3, SIDE, 1)  # [B,1,3,3,8,8]
    rows, columns = torch.randint(3, (2, len(images)))
    return windows[torch.arange(len(images)), :, rows, columns]


def build() -> ViTForImageClassification:
    config = ViTConfig(
        image_size=SIDE,
        patch_size=2,
        num_channels=1,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_dropout_prob=0.1,
        id2label=dict(enumerate(NAMES)),
        label2id={name: i for i, name in enumerate(NAMES)},
    )
    return ViTForImageClassification(config)


def train(model: ViTForImageClassification, images: torch.Tensor, labels: torch.Tensor, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05)
    rising = min(WARM_UP, steps // 2)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=rising)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - rising)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], [rising])
    model.train()
    for _ in range(steps):
        chosen = torch.randint(len(images), (BATCH,))
        logits = model(pixel_values=shifted(images[chosen])).logits
        loss = cross_entropy(logits, labels[chosen], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


@torch.inference_mode()
def accuracy(model: ViTForImageClassification, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    return (model(pixel_values=images).logits.argmax(-1) == labels).float().mean().item()


def main(data: Path, output: Path, steps: int = STEPS) -> None:
    disable_progress_bar()
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # so small a network gains nothing from more, and sums come out the same with any number
    model = build()
    train(model, *read(data / "digits" / "train"), steps)
    print(f"validation accuracy {accuracy(model, *read(data / 'digits' / 'validation')):.3f}")
    model.save_pretrained(output)
    size = {"height": SIDE, "width": SIDE}
    processor = ViTImageProcessor(do_resize=False, size=size, image_mean=[0.5], image_std=[0.5])
    processor.save_pretrained(output)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
