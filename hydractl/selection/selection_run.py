"""The samples that a selection measures, each candidate's logits on them in one pass, and its state on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.heads import in_candidate_order
from hydractl.checkpoint.output import StateFolder, write_bytes
from hydractl.circuit.objective import Material, ScoringData
from hydractl.circuit.saliency import required_labels
from hydractl.data.batching import Batch
from hydractl.data.ranks import Ranks
from hydractl.errors import DataError, NotFiniteError
from hydractl.inference import load_checkpoint
from hydractl.selection.forward import CandidateNetworks, MemberNetworks
from hydractl.selection.greedy import CandidateLogits
from hydractl.selection.pool import CandidatePool
from hydractl.surgery.fusion import fuse
from hydractl.tasks.numbers import require_varied
from hydractl.tasks.task import Task
from hydractl.watch import Watcher

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
    temperature: float | None = 1.0,
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


@dataclass(eq=False)
class SelectionRun:
    """The network, the samples that candidates answer, and the state on disk.

    Attributes:
        watch: of the process that leads.
        selection: the file beside which the state lies; None for no state.
        options: those that the result depends on.
        kept: the states on disk, which go when the selection is written.
    """

    material: Material
    batch_size: int
    ranks: Ranks
    watch: Watcher
    selection: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False
    force: bool = False
    kept: list[Store] = field(default_factory=list)

    @cached_property
    def data(self) -> ScoringData:
        """The samples."""
        return self.material.scoring_data(self.batch_size, self.ranks, share=1 + len(self.material.ood))

    @property
    def samples(self) -> float:
        """The number of samples that this process answers."""
        return self.material.samples / self.ranks.size

    @property
    def conditions(self) -> dict[str, Any]:
        """The model and the samples that every state depends on."""
        return {"model": identity(self.material.checkpoint), **self.material.data_identity()}

    def store(self, pool: CandidatePool) -> Store | None:
        """Returns the folder of the logits: beside the selection; None on ranks that do not lead."""
        if self.selection is None or not self.ranks.leads:
            return None
        conditions = {
            **self.conditions,
            "candidates": [list(map(list, in_candidate_order(candidate.dropped))) for candidate in pool.dropped],
            "files": [identity(member) for member in pool.files],
            **{name: self.options.get(name) for name in ("batch_size", "dtype", "template")},
        }
        folder = self.selection.with_name(f"{self.selection.name}.state")
        store = Store(folder, conditions, self.resume, self.force)
        self.kept.append(store)
        return store

    def answers(self, pool: CandidatePool) -> CandidateLogits:
        """Returns the logits of all candidates on all samples.

        Raises:
            DataError: data that cannot be read, or numbers that are all alike, before any state is begun.
        """
        require_varied(self.data.variance)
        material, store, dropped = self.material, self.store(pool), [candidate.dropped for candidate in pool.dropped]
        networks: list[Answering] = [CandidateNetworks(material.model, dropped, self.data.prompts)]
        dtype, members = next(material.model.parameters()).dtype, [file.members for file in pool.files]
        if pool.files:
            joined = pool.files[0] if len(pool.files) == 1 else fuse(pool.files, ["all"])
            networks.append(MemberNetworks(load_checkpoint(joined, material.device, dtype)))
        with self.watch.progress("select", self.samples) as advance:
            try:
                logits = answer(
                    networks,
                    self.data,
                    material.device,
                    task=material.model.task,
                    temperature=None if self.options.get("objective") == "calibrated" else material.model.temperature,
                    store=store,
                    on_batch=advance,
                )
                return replace(logits, members=[*[1] * len(dropped), *members])
            except DataError:
                self.remove_state()  # the next attempt will ask for something else: nothing may be in its way
                raise

    def remove_state(self) -> None:
        """Removes what lies on disk, once the selection is written."""
        for kept in self.kept:
            kept.remove()
