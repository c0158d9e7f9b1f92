"""Trains a Packed-Ensemble or a MIMO network from scratch and saves what it predicts, for `hydractl evaluate`.

    python from_scratch.py {packed,mimo} FOLDER --train SOURCE --id SOURCE --ood [near/|far/]NAME=SOURCE ...

FOLDER/METHOD then holds the logits of three members for every set, as `predictions:FOLDER/METHOD` reads them.
The layers and the format of MIMO's batches are torch-uncertainty's; a small convolutional network of 32x32 images is
theirs to train. Sources are written as for `hydractl evaluate`.

Sources: Laurent et al. 2023 (Packed-Ensembles: 3 estimators, alpha 2), Havasi et al. 2021 (MIMO: 3 estimators, inputs
equal for half of the samples, batches repeated four times).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from folder import add_data_options, save_predictions
from torch import Tensor, nn
from torch_uncertainty.layers import PackedConv2d, PackedLinear
from torch_uncertainty.transforms import MIMOBatchFormat, RepeatTarget

from hydractl.data.open import open_samples
from hydractl.data.reading import Reading
from hydractl.data.samples import Samples

ESTIMATORS, ALPHA = 3, 2
RHO, REPEATS = 0.5, 4
SIDE, WIDTHS, BATCH, RATE = 32, (36, 72, 144), 128, 0.05  # widths in thirds: a group is a member


class Packed(nn.Module):
    """All members side by side in the channels of grouped layers; every member sees the same images."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        settings = {"alpha": ALPHA, "num_estimators": ESTIMATORS}
        convolutions = [
            PackedConv2d(inputs, outputs, 3, stride=2, padding=1, first=not place, **settings)
            for place, (inputs, outputs) in enumerate(zip((3, *WIDTHS), WIDTHS, strict=False))
        ]
        norms = [nn.BatchNorm2d(layer.conv.out_channels) for layer in convolutions]
        self.body = nn.Sequential(*(part for pair in zip(convolutions, norms) for part in (*pair, nn.ReLU())))  # noqa: B905
        self.classifier = PackedLinear(WIDTHS[-1], classes, ALPHA, ESTIMATORS, last=True)
        self.repeat = RepeatTarget(ESTIMATORS)

    def forward(self, images: Tensor) -> Tensor:
        """Logits `[M*B,C]`, a member after the other."""
        return self.classifier(self.body(images).mean((-2, -1)))

    def batch(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """What is trained on: the images, and the labels once for each member."""
        return self.repeat((images, labels))


class Mimo(nn.Module):
    """One network that takes three images on its channels and answers to each with an output of its own."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in zip((3 * ESTIMATORS, *WIDTHS), WIDTHS, strict=False):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.classifier = nn.Linear(WIDTHS[-1], ESTIMATORS * classes)
        self.format = MIMOBatchFormat(ESTIMATORS, RHO, REPEATS)

    def forward(self, images: Tensor) -> Tensor:
        """Logits `[M*B,C]`, of `[M*B,3,...]` images, each member's own, in training, else of the same `[B,3,...]`."""
        if not self.training:
            images = images.repeat(ESTIMATORS, 1, 1, 1)
        channels = torch.cat(images.chunk(ESTIMATORS), 1)
        answers = self.classifier(self.body(channels).mean((-2, -1)))
        return torch.cat(answers.chunk(ESTIMATORS, -1))

    def batch(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """What is trained on: each member's own images, a member after the other, and their labels."""
        return self.format((images, labels))


METHODS = {"packed": Packed, "mimo": Mimo}


def pixels(samples: Samples) -> Tensor:
    """`[N,3,32,32]`, from -1 to 1."""
    images = (image.convert("RGB").resize((SIDE, SIDE)) for image in samples.inputs)
    return torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2) / 127.5 - 1


def train(model: Packed | Mimo, images: Tensor, labels: Tensor, asked: argparse.Namespace) -> None:
    """SGD with momentum and a cosine schedule, random crops and flips."""
    epochs = asked.epochs
    torch.manual_seed(asked.seed)
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, weight_decay=5e-4)
    steps = epochs * -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for epoch in range(epochs):
        for places in torch.randperm(len(images)).split(BATCH):
            inputs, targets = model.batch(augmented(images[places], asked.pad, asked.flip), labels[places])
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {epochs}: loss {loss.item():.4f}", flush=True)


def augmented(images: Tensor, pad: int, flip: bool) -> Tensor:
    """The images moved by up to `pad` pixels, all of a batch alike, and if asked flipped at random."""
    top, left = torch.randint(0, 2 * pad + 1, (2,)).tolist()
    moved = F.pad(images, (pad,) * 4)[..., top : top + SIDE, left : left + SIDE]
    return torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, moved.flip(-1), moved) if flip else moved


@torch.no_grad()
def logits(model: Packed | Mimo, images: Tensor) -> Tensor:
    """`[M,N,C]`."""
    model.eval()
    return torch.cat([model(some).unflatten(0, (ESTIMATORS, -1)) for some in images.split(BATCH)], 1)


def cost(model: Packed | Mimo) -> dict[str, int]:
    """Parameters, and multiply-adds of one image."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        logits(model, torch.zeros(1, 3, SIDE, SIDE))
    counted = counter.get_total_flops() // 2
    size = sum(parameter.numel() for parameter in model.parameters())
    return {"members": ESTIMATORS, "parameters": size, "multiply_adds": counted, "performed": counted, "tokens": 1}


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", required=True)
    add_data_options(parser)
    parser.add_argument("--epochs", type=int, default=75)
    parser.add_argument("--pad", type=int, default=4, help="pixels that an image may move")
    parser.add_argument("--no-flip", dest="flip", action="store_false", help="digits are no digits then")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(given)
    data = open_samples(asked.train, "image", Reading(limit=asked.limit))
    assert data.labels is not None and data.label_names is not None, f"{data.name}: holds no named labels"
    torch.manual_seed(asked.seed)
    model = METHODS[asked.method](len(data.label_names))
    train(model, pixels(data), torch.from_numpy(data.labels), asked)

    save_predictions(asked.folder / asked.method, asked, list(data.label_names), cost(model),
                     lambda samples: {"logits": logits(model, pixels(samples))})  # fmt: skip


if __name__ == "__main__":
    main()
