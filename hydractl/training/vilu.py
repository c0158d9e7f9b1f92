"""Training ViLU's error predictor on what a frozen zero-shot model answers to labelled images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hydractl.checkpoint.attached import Attached, Vilu, layer_shapes
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.manifest import fingerprint
from hydractl.data.batches import make_batches
from hydractl.data.labels import match_labels
from hydractl.data.preprocessing import preprocessor_from_json
from hydractl.data.samples import Samples
from hydractl.errors import DataError, TrainingError
from hydractl.inference import member_answers
from hydractl.model.failure import ErrorPredictor
from hydractl.model.hydra import Hydra
from hydractl.surgery.provenance import SEEN, with_provenance
from hydractl.training.classifier import held
from hydractl.training.data import Match, digest, remembered
from hydractl.training.order import derived_seed
from hydractl.training.state import load_state, save_state

WIDTH, BATCH, RATE = 512, 128, 1e-3
EPOCHS = 100  # of the 100 to 300 that are published
STARTS, ORDER = 101, 102  # what seeds are derived for


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


@dataclass(frozen=True, eq=False)
class Run:
    """How long to train, where states are kept, and what the result depends on."""

    epochs: int
    seed: int
    folder: Path
    resume: bool
    keep: int
    conditions: Mapping[str, Any]
    on_epoch: Callable[[float], None] = lambda loss: None

    def saves(self, epoch: int) -> bool:
        """Whether the state after so many epochs is kept: every tenth of the run, and the last."""
        return epoch % max(1, self.epochs // 10) == 0 or epoch == self.epochs


def vilu_conditions(
    checkpoint: Checkpoint, data: Samples, template: str, match: Match, epochs: int, seed: int
) -> dict[str, Any]:
    """All that determines the predictor, in plain JSON."""
    return {
        "method": "vilu",
        "epochs": epochs,
        "seed": seed,
        "template": template,
        "match_labels": match,
        "model": fingerprint(replace(checkpoint, attached=None)),
        "training data": digest(data),
    }


def answer(
    model: Hydra, checkpoint: Checkpoint, data: Samples, match: Match, batch_size: int, on_batch: Callable[[int], None]
) -> Answered:
    """What the model, which knows its classes, answers to labelled images; each is seen once.

    Raises:
        DataError: a sample cannot be read, labels do not match, or all answers are right, or all wrong.
    """
    assert model.labels is not None and model.class_embeddings is not None
    samples = match_labels(data, model.labels, match)
    preprocessor = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config)
    images, predicted, wrong = [], [], []
    for batch in make_batches(samples, preprocessor, batch_size):
        answers = member_answers(model, batch, features=True)
        assert answers.features is not None and batch.labels is not None
        images.append(F.normalize(answers.features.mean(0), dim=-1))
        predicted.append(answers.logits.softmax(-1).mean(0).argmax(-1))
        wrong.append(predicted[-1] != batch.labels)
        on_batch(len(batch.labels))
    errors = torch.cat(wrong)
    if errors.all() or not errors.any():
        found = "wrong" if errors.all() else "right"
        raise DataError(
            f"{data.name}: the model is {found} on all of it, which tells nothing of errors: name other data"
        )
    classes = F.normalize(model.class_embeddings.to("cpu", images[0].dtype).mean(0), dim=-1)
    return Answered(torch.cat(images), classes, torch.cat(predicted), errors)


def weighted_loss(log_odds: Tensor, wrong: Tensor, weight: float) -> Tensor:
    """The mean binary cross-entropy of `[B]` log-odds, errors counting `weight` times."""
    return F.binary_cross_entropy_with_logits(log_odds, wrong.to(log_odds), pos_weight=log_odds.new_tensor(weight))


def train(answered: Answered, run: Run) -> dict[str, Tensor]:
    """The weights of a predictor of errors; errors count as much as right predictions, however few there are.

    Raises:
        TrainingError: a weight is not finite.
        OptionError: a state to resume belongs to another run.
    """
    weights = _start(answered.images.shape[-1], run.seed, answered.images.dtype)
    optimizer = torch.optim.Adam(list(weights.values()), RATE)
    state = load_state(run.folder, run.conditions) if run.resume else None
    first = 0
    if state is not None:
        first = state["step"]
        optimizer.load_state_dict(state["optimizer"])
        with torch.no_grad():
            for name, tensor in weights.items():
                tensor.copy_(state["model"][name])
    ratio = float((~answered.wrong).sum() / answered.wrong.sum())
    for epoch in range(first, run.epochs):
        loss = _epoch(answered, ErrorPredictor(weights), optimizer, ratio, derived_seed(run.seed, ORDER, epoch))
        if not all(tensor.isfinite().all() for tensor in weights.values()):
            raise TrainingError(f"a weight of the error predictor is no longer finite after {epoch + 1} epochs")
        if run.saves(epoch + 1):
            numbers = {name: tensor.detach().clone() for name, tensor in weights.items()}
            kept = {
                "run": dict(run.conditions),
                "step": epoch + 1,
                "model": numbers,
                "optimizer": optimizer.state_dict(),
            }
            save_state(run.folder, epoch + 1, kept, run.keep)
        run.on_epoch(loss)
    return {name: tensor.detach() for name, tensor in weights.items()}


def _epoch(
    answered: Answered, predictor: ErrorPredictor, optimizer: torch.optim.Optimizer, ratio: float, seed: int
) -> float:
    order = torch.randperm(len(answered.wrong), generator=torch.Generator().manual_seed(seed))
    total = 0.0
    for places in order.split(BATCH):
        log_odds = predictor(answered.images[places], answered.classes, answered.predicted[places])
        loss = weighted_loss(log_odds, answered.wrong[places], ratio)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(places)
    return total / len(order)


def _start(projection: int, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Untrained weights: uniform by the number of inputs, as torch's linear layers start."""
    generator = torch.Generator().manual_seed(derived_seed(seed, STARTS))
    weights = {}
    fan = 1
    for name, shape in layer_shapes(projection, WIDTH).items():
        fan = shape[1] if len(shape) == 2 else fan  # a bias follows its weight
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        weights[name] = (drawn / fan**0.5).to(dtype).requires_grad_()
    return weights


def with_predictor(
    checkpoint: Checkpoint, weights: Mapping[str, Tensor], data: Samples, conditions: Mapping[str, Any]
) -> Checkpoint:
    """The checkpoint with the predictor beside it; it has no temperature, by which the predictor would not change."""
    options = {"conditions": dict(conditions), SEEN: {"training data": remembered(data)}}
    made = with_provenance(replace(checkpoint, temperature=None), "finetune", [checkpoint], options)
    tensors = {name: held(tensor.contiguous()) for name, tensor in weights.items()}
    return replace(made, attached=Attached(Vilu("vilu", WIDTH), tensors))
