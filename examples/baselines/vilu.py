"""ViLU: a small network that tells from a zero-shot model's embeddings whether its prediction is wrong.

    python vilu.py MODEL FOLDER --train SOURCE --id SOURCE --ood [near/|far/]NAME=SOURCE ...

FOLDER then holds predictions for `hydractl evaluate vilu=predictions:FOLDER`, each with the log-odds that it is right
as its confidence. The classes are those of the ID data.

Source: Lafon et al. 2025, arXiv 2507.07620.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from folder import add_data_options, batches, save_predictions
from torch import Tensor

import hydractl
from hydractl.data.labels import match_labels
from hydractl.data.open import open_samples
from hydractl.data.reading import Reading
from hydractl.data.samples import Samples
from hydractl.model.hydra import Hydra, HydraOutput
from hydractl.systems.cost import cost

WIDTH, BATCH, RATE, LAYERS = 512, 128, 1e-3, 3


@dataclass(frozen=True, eq=False)
class ErrorPredictor:
    """The network's weights, by name."""

    weights: Mapping[str, Tensor]

    def __call__(self, images: Tensor, classes: Tensor, predicted: Tensor) -> Tensor:
        """The log-odds `[B]` that the predictions are wrong.

        Args:
            images: `[B,P]` embeddings of unit length.
            classes: `[C,P]` likewise.
            predicted: `[B]`, which of the classes each image was taken for.
        """
        q, k, v = (self.weights[f"attention.{part}"] for part in "qkv")
        # By associativity the classes are never projected, which would cost C times what one image costs.
        scores = images @ q.T @ k @ classes.T / images.shape[-1] ** 0.5
        weighted = scores.softmax(-1) @ classes @ v.T
        hidden = torch.cat([images, classes[predicted], weighted], -1)
        for layer in range(LAYERS):
            hidden = F.linear(
                F.relu(hidden) if layer else hidden,
                self.weights[f"mlp.{layer}.weight"],
                self.weights[f"mlp.{layer}.bias"],
            )
        return hidden[:, 0]

    def confidence(self, features: Tensor, classes: Tensor, member_logits: Tensor) -> Tensor:
        """How sure it is that the members' mean is right, `[B]`; embeddings of several members are averaged.

        Args:
            features: `[M,B,P]`.
            classes: `[G,C,P]`.
            member_logits: `[M,B,C]`.
        """
        predicted = member_logits.float().softmax(-1).mean(0).argmax(-1)
        wide = next(iter(self.weights.values())).dtype
        images, texts = (F.normalize(one.to(wide).mean(0), dim=-1) for one in (features, classes))
        return -self(images, texts, predicted)

    def multiply_adds(self, classes: int) -> int:
        """For one image."""
        width = self.weights["attention.q"].shape[0]
        layers = sum(self.weights[f"mlp.{layer}.weight"].numel() for layer in range(LAYERS))
        return 3 * width * width + 2 * classes * width + layers


def layer_shapes(projection: int, width: int) -> dict[str, tuple[int, ...]]:
    """The weights of an error predictor that reads embeddings of a width, each bias after its weight."""
    attention: dict[str, tuple[int, ...]] = {f"attention.{part}": (projection, projection) for part in "qkv"}
    sizes = (3 * projection, width, width, 1)
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        attention |= {f"mlp.{layer}.weight": (outputs, inputs), f"mlp.{layer}.bias": (outputs,)}
    return attention


@dataclass(frozen=True, eq=False)
class Answered:
    """What a frozen model makes of N labelled images.

    Attributes:
        images: `[N,P]` embeddings of unit length.
        classes: `[C,P]` likewise.
        predicted: `[N]`, the class each image is taken for.
        wrong: `[N]` booleans.
    """

    images: Tensor
    classes: Tensor
    predicted: Tensor
    wrong: Tensor


def outputs(model: Hydra, samples: Samples, size: int) -> Iterator[HydraOutput]:
    """Yields what a zero-shot model answers to images, so many at once."""
    assert model.preprocessor is not None
    for images in batches(samples, size):
        yield model(**model.preprocessor(images))


@torch.no_grad()
def answer(model: Hydra, data: Samples, size: int) -> Answered:
    """Returns what the model makes of labelled images; each is seen once.

    Raises:
        SystemExit: all answers are right, or all wrong.
    """
    assert model.labels is not None and model.class_embeddings is not None
    samples = match_labels(data, model.labels, "name")
    found = list(outputs(model, samples, size))
    images = torch.cat([F.normalize(output.features.mean(0), dim=-1) for output in found])
    predicted = torch.cat([output.member_logits.softmax(-1).mean(0).argmax(-1) for output in found])
    wrong = predicted != torch.as_tensor(samples.labels)
    if wrong.all() or not wrong.any():
        raise SystemExit(f"{data.name}: all answers are {'wrong' if wrong.all() else 'right'}: name other data")
    return Answered(images, F.normalize(model.class_embeddings.mean(0), dim=-1), predicted, wrong)


def train(answered: Answered, epochs: int, seed: int) -> ErrorPredictor:
    """Returns a predictor of errors; errors weigh as much as right predictions, however few there are."""
    generator = torch.Generator().manual_seed(seed)
    weights = start(answered.images.shape[-1], generator)
    optimizer = torch.optim.Adam(list(weights.values()), RATE)
    ratio = (~answered.wrong).sum() / answered.wrong.sum()
    predictor = ErrorPredictor(weights)
    for _ in range(epochs):
        for places in torch.randperm(len(answered.wrong), generator=generator).split(BATCH):
            log_odds = predictor(answered.images[places], answered.classes, answered.predicted[places])
            loss = F.binary_cross_entropy_with_logits(log_odds, answered.wrong[places].float(), pos_weight=ratio)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return ErrorPredictor({name: tensor.detach() for name, tensor in weights.items()})


def start(projection: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Returns untrained weights: uniform by the number of inputs, as torch's linear layers start."""
    weights, fan = {}, 1
    for name, shape in layer_shapes(projection, WIDTH).items():
        fan = shape[1] if len(shape) == 2 else fan  # a bias follows its weight
        weights[name] = ((torch.rand(shape, generator=generator) * 2 - 1) / fan**0.5).requires_grad_()
    return weights


@torch.no_grad()
def predictions(model: Hydra, predictor: ErrorPredictor, samples: Samples, size: int) -> dict[str, Tensor]:
    """Returns the logits `[M,N,C]` of images, and the confidence `[N]` that each answer is right."""
    assert model.class_embeddings is not None
    found = list(outputs(model, samples, size))
    sure = [predictor.confidence(one.features, model.class_embeddings, one.member_logits) for one in found]
    return {"logits": torch.cat([one.member_logits for one in found], 1), "confidence": torch.cat(sure)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", required=True, metavar="SOURCE", help="labelled images")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    add_data_options(parser)
    options = parser.parse_args()
    model = hydractl.load(options.model)
    data = open_samples(options.train, "image", Reading(limit=options.limit))
    assert data.label_names is not None, f"{data.name}: has no named labels"
    model.set_classes(data.label_names)
    predictor = train(answer(model, data, options.batch_size), options.epochs, options.seed)
    extra = predictor.multiply_adds(len(data.label_names))
    counted = cost(model)
    size = sum(tensor.numel() for tensor in predictor.weights.values())
    counted = replace(counted, parameters=counted.parameters + size, multiply_adds=counted.multiply_adds + extra,
                      performed=counted.performed + extra)  # fmt: skip
    save_predictions(
        options.folder, options, list(data.label_names), counted,
        lambda samples: predictions(model, predictor, samples, options.batch_size),
    )  # fmt: skip


if __name__ == "__main__":
    main()
