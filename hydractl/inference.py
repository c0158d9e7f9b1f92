"""Loads a model that is ready to answer, and runs it over batches."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.batching import Batch
from hydractl.data.preprocess import Preprocessor, preprocessor_from_json
from hydractl.data.words import WordPlace
from hydractl.errors import DataError
from hydractl.model.answering import BatchAnswers, finite_on_cpu
from hydractl.model.hydra import Hydra, from_checkpoint
from hydractl.ood.score import Beside


class Logits(NamedTuple):
    """Logits of N samples, or words of samples, in order."""

    member_logits: Tensor  # `[M,N,C]` float32 (float64 from a float64 model) on the CPU
    labels: Tensor | None  # `[N]` int64, or None for samples without labels


def load_checkpoint(
    checkpoint: Checkpoint, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Hydra:
    """Returns a model in eval mode with its preprocessing.

    Args:
        dtype: of the weights; default: the stored one.
    """
    model = from_checkpoint(checkpoint, device, dtype)
    model.preprocessor = _Preprocessing(checkpoint)
    return model


def load_to_compute(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype | None) -> Hydra:
    """Returns a model as `load_checkpoint` does; one of half precision in float32 where a CPU computes.

    A CPU takes four to five times as long in half precision. The file keeps its type.
    """
    half = dtype is None and device.type == "cpu" and checkpoint.dtype.itemsize < torch.float32.itemsize
    model = load_checkpoint(checkpoint, device, torch.float32 if half else dtype)
    model.stored_dtype = checkpoint.dtype if half else None
    return model


class _Preprocessing:
    """Preprocessing that is built at its first use: tokenizers load slowly, and not every use of a model needs them."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        # Without its tensors: their open file would keep the model from being copied and pickled.
        self._made_of = checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config

    @cached_property
    def built(self) -> Preprocessor:
        return preprocessor_from_json(*self._made_of)

    @property
    def by_word(self) -> bool:
        return self.built.by_word

    def __call__(self, samples: Iterable[object]) -> dict[str, Tensor]:
        return self.built(samples)

    def each(self, samples: object) -> Iterable[object]:
        return self.built.each(samples)

    def lengths(self, texts: Sequence[object]) -> tuple[NDArray[np.int64], int]:
        return self.built.lengths(texts)

    def words(self, texts: Sequence[object]) -> list[list[WordPlace]]:
        return self.built.words(texts)


def member_answers(model: Hydra, batch: Batch, reads: Beside = "logits") -> BatchAnswers:
    """Returns the members' outputs for one batch.

    Args:
        reads: what to return beside the logits: the features, and the hidden layers too; or all numbers of the score in
            the model's file.

    Raises:
        NotFiniteError: logits or features are not finite.
    """
    device = next(model.parameters()).device
    with torch.inference_mode():
        inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.inputs.items()}
        every = reads == "layers"
        output = model(**inputs, every_layer=True) if every else model(**inputs)
        if reads == "typicality":
            return with_typicality(batch, output.own)
        scored = model.ood_head is not None and model.ood_head.row.reads == "layers" and output.ood_score is not None
        return BatchAnswers(
            finite_on_cpu(batch.answered(output.member_logits), "logits"),
            finite_on_cpu(output.ood_score, "OOD scores") if scored else None,
            features=None if reads == "logits" else finite_on_cpu(output.features, "features"),
            hidden=[finite_on_cpu(layer, "hidden states") for layer in output.hidden] if every else (),
            places=batch.places,
        )


def with_typicality(batch: Batch, outputs: BatchAnswers) -> BatchAnswers:
    """Returns the answers to a batch with the numbers of the model's own score; see `BatchAnswers.checked`."""
    answered = outputs._replace(member_logits=batch.answered(outputs.member_logits), places=batch.places)
    return answered.checked(batch.positions.tolist())


def collect_logits(model: Hydra, batches: Iterable[Batch]) -> Logits:
    """Runs a model over batches and puts the logits back into sample order.

    Args:
        batches: as `make_batches` yields them, in any order of samples.

    Raises:
        DataError: there are no samples, or the model's logits are not finite.
    """
    logits, labels, positions = [], [], []
    for batch in batches:
        logits.append(member_answers(model, batch).member_logits)
        positions.append(batch.positions if batch.words is None else batch.positions[batch.words[:, 0]])
        if batch.labels is not None:
            labels.append(batch.labels)
    if not logits:
        raise DataError("no samples to run the model on: give at least one")
    order = torch.cat(positions).argsort(stable=True)
    return Logits(torch.cat(logits, 1)[:, order], torch.cat(labels)[order] if labels else None)
