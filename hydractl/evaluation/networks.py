"""Systems made of checkpoints: one network, several in turn (a Deep Ensemble), or passes with dropout."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.batches import Batch, make_batches
from hydractl.data.labels import match_labels
from hydractl.data.preprocessing import Preprocessor
from hydractl.data.sources import Samples
from hydractl.errors import DataError, OptionError
from hydractl.evaluation.cost import Cost, cost
from hydractl.evaluation.predictor import LogitBatch
from hydractl.evaluation.sets import EvaluationData, SetKey
from hydractl.evaluation.systems import Dropout
from hydractl.inference import member_logits
from hydractl.model.hydra import Hydra


def check_together(name: str, checkpoints: Sequence[Checkpoint]) -> None:
    """Nothing, if these networks can answer as one ensemble.

    Raises:
        OptionError: other classes, preprocessing or temperatures.
    """
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for what, one, two in (
            ("classes", first.labels, other.labels),
            ("preprocessing", first.preprocessing, other.preprocessing),
            ("temperatures", first.temperature or 1.0, other.temperature or 1.0),
        ):
            if one != two:
                raise OptionError(
                    f"{name}: {first.name} and {other.name} have different {what}: networks of one ensemble need the "
                    "same; evaluate each alone, or fuse them first"
                )


@dataclass(frozen=True, eq=False)
class Networks:
    """Networks that answer in turn on the same batches; their members together are the ensemble.

    The networks share preprocessing, classes and temperature (`check_together`). With dropout each answers
    `passes` times, with draws that depend on the seed and the batch alone.
    """

    models: Sequence[Hydra]
    preprocessor: Preprocessor
    data: EvaluationData
    batch_size: int
    dropout: Dropout | None = None
    seed: int = 0
    workers: int = 0
    on_note: Callable[[str], None] | None = None  # told what a reader of the numbers should know

    @property
    def temperature(self) -> float:
        return self.models[0].temperature

    @property
    def cost(self) -> Cost:
        passes = self.dropout.passes if self.dropout else 1
        parts = [cost(model) for model in self.models]
        return Cost(
            members=passes * sum(part.members for part in parts),
            parameters=sum(part.parameters for part in parts),
            multiply_adds=passes * sum(part.multiply_adds for part in parts),
            performed=passes * sum(part.performed for part in parts),
            tokens=parts[0].tokens,
        )

    def samples(self, key: SetKey) -> int:
        return len(self.data.sets[key])

    def logits(self, key: SetKey) -> Iterator[LogitBatch]:
        samples = self._labelled(self.data.sets[key]) if key.has_labels else self.data.sets[key]
        batches = make_batches(samples, self.preprocessor, self.batch_size, workers=self.workers)
        if batches.truncated and self.on_note is not None:
            counted = f"{batches.truncated} of {len(samples)} texts"
            self.on_note(f"{samples.name}: {counted} are too long for the model and lost their end")
        for batch in batches:
            logits = [part for model in self.models for part in self._passes(model, batch, key)]
            yield LogitBatch(torch.cat(logits), batch.labels if key.has_labels else None, batch.positions)

    def _labelled(self, samples: Samples) -> Samples:
        labels = self.models[0].labels
        if labels is None:
            raise DataError(f"{samples.name}: the model's classes have no names to match its labels with")
        return match_labels(samples, labels, self.data.match)

    def _passes(self, model: Hydra, batch: Batch, key: SetKey) -> Iterator[Tensor]:
        if self.dropout is None:
            yield member_logits(model, batch)
            return
        device = next(model.parameters()).device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            # A batch draws the same whichever process runs it and whatever ran before.
            torch.manual_seed(_batch_seed(self.seed, key, int(batch.positions[0])))
            for _ in range(self.dropout.passes):
                yield member_logits(model, batch)


def with_dropout(model: Hydra, dropout: Dropout, name: str) -> Hydra:
    """The model with dropout on at test time, at the rate asked for or at its own.

    Raises:
        OptionError: no rate given and none of its own.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    if dropout.rate is None and not any(layer.p for layer in layers):
        raise OptionError(f"{name}: was trained without dropout: say how much, as in {name},mc-dropout=10,p=0.1")
    for layer in layers:
        layer.p = layer.p if dropout.rate is None else dropout.rate
    return model.train()


def _batch_seed(seed: int, key: SetKey, position: int) -> int:
    digest = hashlib.blake2b(f"{seed} {key.path} {position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
