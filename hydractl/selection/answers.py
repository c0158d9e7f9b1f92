"""Logits of every candidate on every selection sample, computed in one pass and kept on disk meanwhile."""

from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hydractl.checkpoint.output import StateFolder, write_bytes
from hydractl.circuit.objective import ScoringData
from hydractl.circuit.saliency import required_labels
from hydractl.data.batching import Batch
from hydractl.errors import NotFiniteError
from hydractl.selection.forward import CandidateNetworks, MemberNetworks
from hydractl.selection.greedy import CandidateLogits
from hydractl.tasks.task import Task

#: Networks that predict together.
Answering = CandidateNetworks | MemberNetworks


class Store(StateFolder):
    """A folder with the logits of each finished batch in a file."""

    kind = "selection-state"

    def read(self, name: str, number: int) -> NDArray[np.floating] | None:
        """Returns the logits of a batch of the data called `id` or `ood`, or None if they have not been computed."""
        path = self._path(name, number)
        return np.load(path, allow_pickle=False) if path.is_file() else None

    def write(self, name: str, number: int, logits: NDArray[np.floating]) -> None:
        """Keeps the logits of a batch."""
        out = BytesIO()
        np.save(out, logits, allow_pickle=False)
        write_bytes(self._path(name, number), out.getvalue(), force=True)

    def _path(self, name: str, number: int) -> Path:
        return self.folder / f"{name}-{number:06}.npy"


def answer(
    networks: Sequence[Answering],
    data: ScoringData,
    device: torch.device,
    *,
    task: Task,
    temperature: float = 1.0,
    store: Store | None = None,
    on_batch: Callable[[int], None] = lambda samples: None,
) -> CandidateLogits:
    """Returns the logits of all networks on all samples.

    Args:
        networks: whose candidates follow one another in the result.
        store: keeps each batch's logits, so that an interrupted run continues.
        on_batch: called with the size of each finished batch.

    Raises:
        DataError: a logit is not finite, or the ID samples have no labels.
    """
    first, count = networks[0], sum(network.size for network in networks)
    places = [_Places(data.id, data.id_samples), _Places(data.ood, data.ood_samples)]
    first_labels = required_labels(data.id[0]).numpy()
    labels = np.zeros((places[0].total, *first_labels.shape[1:]), first_labels.dtype)

    def of(name: str, batches: Sequence[Batch], places: _Places) -> NDArray[np.floating]:
        gathered = np.zeros((count, places.total, first.classes), first.dtype)
        for number in range(data.ranks.rank, len(batches), data.ranks.size):
            batch = batches[number]
            rows = places.of(batch)
            if batches is data.id:
                labels[rows] = required_labels(batch).numpy()
            logits = store.read(name, number) if store else None
            if logits is None:
                logits = logits_of(networks, batch, device)
                if store:
                    store.write(name, number, logits)
            gathered[:, rows] = logits
            on_batch(len(batch.positions))
        return data.ranks.total(torch.from_numpy(gathered)).numpy()

    id_logits, ood_logits = of("id", data.id, places[0]), of("ood", data.ood, places[1])
    ends = list(accumulate(data.ood_sets))[:-1]
    by_set = np.split(ood_logits, places[1].starts[ends], axis=1) if data.ood_sets else []
    words = [places[0].counts, *np.split(places[1].counts, ends)] if data.id[0].words is not None else []
    labels = data.ranks.total(torch.from_numpy(labels)).numpy()
    return CandidateLogits(task, id_logits, labels, by_set, temperature=temperature, words=words)


class _Places:
    """The rows of samples in a table of answers: one for each, or one for each of its words."""

    def __init__(self, batches: Sequence[Batch], samples: int) -> None:
        self.counts = np.ones(samples, np.int64)
        for batch in batches if len(batches) and batches[0].words is not None else ():
            counts = batch.word_counts()
            assert counts is not None
            self.counts[batch.positions.numpy()] = counts
        self.starts = np.cumsum(self.counts) - self.counts

    @property
    def total(self) -> int:
        """The number of rows."""
        return int(self.counts.sum())

    def of(self, batch: Batch) -> NDArray[np.int64]:
        """Returns the rows of a batch's answers."""
        return np.concatenate([self.starts[p] + np.arange(self.counts[p]) for p in batch.positions.numpy()])


def logits_of(networks: Sequence[Answering], batch: Batch, device: torch.device) -> NDArray[np.floating]:
    """Returns the logits of all networks on a batch, `[K,B,C]`, or `[K,n,C]` of its words, at least float32."""
    inputs = {name: tensor.to(device) for name, tensor in batch.inputs.items()}
    parts = [batch.answered(network.logits(inputs)) for network in networks]
    # Decisions are made in float32 or wider.
    logits = torch.cat([part.to("cpu", torch.promote_types(part.dtype, torch.float32)) for part in parts]).numpy()
    if not np.isfinite(logits).all():
        raise NotFiniteError("a candidate's logits are not finite on this data: try `dtype` float32")
    return logits
