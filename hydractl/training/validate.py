"""Accuracy, NLL and ECE on validation data while a network trains."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from accelerate.utils import gather_object

from hydractl.data.batching import Batches
from hydractl.errors import DataError
from hydractl.inference import collect_logits
from hydractl.metrics.calibration import classification_metrics
from hydractl.metrics.table import tabulate
from hydractl.model.hydra import Hydra
from hydractl.training.losses import model_embeddings, pair_logits


@dataclass(frozen=True)
class Validation:
    """Accuracy, negative log-likelihood and ECE of the members' mean probability."""

    accuracy: float
    nll: float
    ece: float

    def better_than(self, other: Validation | None) -> bool:
        """Returns whether accuracy is higher, or the same and NLL lower."""
        return other is None or (self.accuracy, -self.nll) > (other.accuracy, -other.nll)

    def to_json(self) -> dict[str, float]:
        """Returns the numbers as a line of the log has them."""
        return asdict(self)


def validate(model: Hydra, batches: Batches) -> Validation:
    """Returns the model's results on validation data; each process computes its own batches.

    Raises:
        DataError: an image cannot be read, or the logits are not finite.
    """
    was_training = model.training
    model.eval()
    parts = [collect_logits(model, batches)] if len(batches) else []
    model.train(was_training)
    parts = gather_object(parts)
    logits = torch.cat([part.member_logits for part in parts], 1)
    labels = [part.labels for part in parts if part.labels is not None]
    if not labels:
        raise DataError(f"{batches.samples.name}: holds no labels to validate with")
    metrics = classification_metrics(tabulate(logits.numpy(), torch.cat(labels).numpy(), model.temperature))
    return Validation(metrics.accuracy, metrics.nll, metrics.ece)


def validate_pairs(model: Hydra, batches: Batches) -> Validation:
    """Returns how well each image's own text is told from the texts of all other validation pairs."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    parts = []
    with torch.inference_mode():
        for batch in batches:
            images, texts = model_embeddings(model, {name: t.to(device) for name, t in batch.inputs.items()})
            parts.append((images.cpu(), texts.cpu()))
        parts = gather_object(parts)
        images, texts = (torch.cat([part[side] for part in parts], 1) for side in (0, 1))
        logits = pair_logits(images, texts, model.logit_scale.cpu()).expand(model.members, -1, -1).float()
    model.train(was_training)
    metrics = classification_metrics(tabulate(logits.numpy(), np.arange(logits.shape[1])))
    return Validation(metrics.accuracy, metrics.nll, metrics.ece)
