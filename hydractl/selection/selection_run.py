"""The samples that a selection measures, its state on disk, and each candidate's logits from one pass.

Candidates form a trie: those that keep the same heads in all layers up to one share its hidden state. Where they part,
the heads that any of them keeps are mixed once, and each sums up its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.checkpoint.heads import Head, in_candidate_order, without
from hydractl.checkpoint.manifest import fingerprint
from hydractl.checkpoint.output import StateFolder, write_bytes
from hydractl.circuit.objective import Material, ScoringData
from hydractl.circuit.replay import Hidden, embed
from hydractl.circuit.saliency import required_labels
from hydractl.data.batching import Batch
from hydractl.data.ranks import Ranks
from hydractl.errors import DataError, NotFiniteError
from hydractl.inference import load_checkpoint
from hydractl.model.attention import FusedAttention
from hydractl.model.encoder import Place, Tower
from hydractl.model.fast.optimize import FastLayer, FastTower
from hydractl.model.hydra import Hydra
from hydractl.model.linear import Stored
from hydractl.selection.greedy import CandidateLogits
from hydractl.selection.pool import CandidatePool
from hydractl.surgery.fusion import fuse
from hydractl.tasks.numbers import require_varied
from hydractl.tasks.task import Task
from hydractl.watch import Watcher

Kept = tuple[int, ...]

#: The bytes of candidates' weights that are kept; layers beyond are laid out again when they are needed.
WEIGHT_BYTES = 2**31


@dataclass
class Node:
    """Candidates that keep the same heads in every layer below `layer`."""

    layer: int
    candidates: list[int] = field(default_factory=list)  # their numbers
    # By the heads kept in `layer`, ascending; none after the last layer.
    branches: dict[Kept, Node] = field(default_factory=dict)

    def mixtures(self) -> int:
        """Counts the layers that are mixed below here: one for each hidden state that differs."""
        return sum(1 + node.mixtures() for node in self.branches.values())


def trie(kept: Sequence[Sequence[Kept]]) -> Node:
    """Builds the trie of candidates from the heads that each keeps in each layer of a tower."""
    root = Node(0)
    for number, layers in enumerate(kept):
        node = root
        node.candidates.append(number)
        for layer, heads in enumerate(layers):
            node = node.branches.setdefault(heads, Node(layer + 1))
            node.candidates.append(number)
    return root


class _Tower:
    """A tower that computes the layers that candidates share once."""

    def __init__(self, model: Hydra, name: str, dropped: Sequence[frozenset[Head]]) -> None:
        self.tower = cast(Tower, model.get_submodule(name))
        self.fast = FastTower(self.tower)
        self.before: list[Kept] = [members[0] for members in model.heads[name]]
        kept = [[members[0] for members in without(model.heads, gone)[name]] for gone in dropped]
        self.root = trie(kept)
        attention = sum(p.numel() * p.element_size() for p in self.fast.layers[0].attention.parameters())
        self.layer = lru_cache(maxsize=max(2 * len(self.before), WEIGHT_BYTES // max(attention, 1)))(self._layer)

    def pooled(self, start: Hidden) -> list[Tensor]:
        """Returns the pooled output `[1,B,D]` of each candidate, from the input of the first layer."""
        x, mask, ids = start
        outputs: dict[int, Tensor] = {}
        place = self.tower.place(ids)
        for node, last in self._walk(self.root, x, mask, place):
            outputs |= dict.fromkeys(node.candidates, self.fast.pool_at(place, last, mask))
        return [outputs[number] for number in sorted(outputs)]

    def _walk(self, node: Node, x: Tensor, mask: Tensor | None, place: Place | None) -> Iterator[tuple[Node, Tensor]]:
        if not node.branches:
            yield node, x
            return
        needed = tuple(sorted(set().union(*node.branches)))
        layer = self.layer(node.layer, needed)
        z, residual = layer.mix_at(place, x, mask)
        for heads, branch in node.branches.items():
            attended = self._attended(node.layer, z, needed, heads)
            yield from self._walk(branch, layer.complete(residual, attended), mask, place)

    def _attended(self, number: int, z: Tensor, mixed: Kept, heads: Kept) -> Tensor:
        """Returns the attention output `[1,B,T,D]` of some of the heads that were mixed."""
        if heads == mixed:
            return self.layer(number, heads).attention.output(z)
        width = self.tower.spec.head_width
        columns = [mixed.index(head) * width + i for head in heads for i in range(width)]
        return self.layer(number, heads).attention.output(z[..., columns])

    def _layer(self, number: int, heads: Kept) -> FastLayer:
        """Returns a layer with these heads alone."""
        if heads == self.before[number]:
            return self.fast.layers[number]
        dense = self.tower.layers[number]
        attention = cast(FusedAttention, dense.attention)
        pooled = number == len(self.before) - 1 and self.tower.spec.tokens_read > 0
        return FastLayer(dense, pooled=pooled, attention=self._attention(attention, number, heads)).eval()

    def _attention(self, dense: FusedAttention, number: int, heads: Kept) -> FusedAttention:
        before = self.before[number]
        state = {}
        for name, tensor in dense.state_dict().items():
            axis = None if "_norm." in name else {"o.weight": 1, "o.bias": None}.get(name, 0)
            width = 1 if name == "relative" else dense.head_width
            rows = [before.index(head) * width + i for head in heads for i in range(width)]
            state[name] = (
                tensor if axis is None else tensor.index_select(axis, torch.tensor(rows, device=tensor.device).long())
            )
        shapes = {f"own.{name}": tuple(tensor.shape) for name, tensor in state.items()}
        pruned = FusedAttention(self.tower.spec, number, "own", (heads,), Stored(shapes), self.tower.embeddings)
        pruned.load_state_dict(state, assign=True)
        return pruned.eval().requires_grad_(False)


class CandidateNetworks:
    """Candidates of a network, ready to run."""

    def __init__(
        self, model: Hydra, dropped: Sequence[frozenset[Head]], prompts: Sequence[Mapping[str, Tensor]] = ()
    ) -> None:
        """
        Args:
            model: of one member, as it was loaded.
            dropped: what each candidate lacks of its heads.
            prompts: batches of class prompts, of a zero-shot model.
        """
        self.model, self.size, self.dtype = model, len(dropped), _dtype(model)
        self.towers: dict[str, _Tower] = {tower.name: _Tower(model, tower.name, dropped) for tower in model.spec.towers}
        self.prompts: list[Tensor] = []  # [1,C,P] of each candidate
        if prompts:
            parts = [self._pooled("text", batch) for batch in prompts]
            self.prompts = [
                torch.cat([model.embed("text", output) for output in outputs], 1)
                for outputs in zip(*parts, strict=True)
            ]

    @property
    def classes(self) -> int:
        """C."""
        weights = self.prompts[0] if self.prompts else self.model.classifier_weights()[0]
        return weights.shape[1]

    @torch.inference_mode()
    def logits(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Returns logits `[K,B,C]`, in the model's dtype."""
        name = self.model.spec.towers[0].name
        pooled = self._pooled(name, inputs)
        if not self.prompts:
            return torch.cat([self.model.classify(output) for output in pooled])
        images = (self.model.embed(name, output) for output in pooled)
        return torch.cat(
            [self.model.compare(image, prompts) for image, prompts in zip(images, self.prompts, strict=True)]
        )

    @torch.inference_mode()
    def _pooled(self, name: str, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        tower = self.towers[name]
        return tower.pooled(embed(tower.tower, inputs))


class MemberNetworks:
    """Members of one file, each of them a candidate; what they share is computed once."""

    def __init__(self, model: Hydra) -> None:
        """
        Args:
            model: as fused with everything kept separate that differs.
        """
        self.model, self.size, self.dtype = model.optimize_for_inference(), model.members, _dtype(model)

    @property
    def classes(self) -> int:
        """C."""
        return self.model.classifier_weights()[0].shape[1]

    @torch.inference_mode()
    def logits(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Returns logits `[K,B,C]`, in the model's dtype."""
        return self.model(**inputs).member_logits


def _dtype(model: Hydra) -> str:
    """Returns NumPy's name for the dtype of a model's logits."""
    return "float64" if next(model.parameters()).dtype == torch.float64 else "float32"


#: Networks that predict together.
Answering = CandidateNetworks | MemberNetworks


class Store(StateFolder):
    """A folder with the logits of each finished batch in a file."""

    kind = "selection-state"

    def read(self, number: int) -> NDArray[np.floating] | None:
        """Returns the logits of a batch, or None if they have not been computed."""
        path = self._path(number)
        return np.load(path, allow_pickle=False) if path.is_file() else None

    def write(self, number: int, logits: NDArray[np.floating]) -> None:
        """Keeps the logits of a batch."""
        out = BytesIO()
        np.save(out, logits, allow_pickle=False)
        write_bytes(self._path(number), out.getvalue(), force=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"id-{number:06}.npy"


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
    first, count, places = networks[0], sum(network.size for network in networks), _Places(data.id, data.id_samples)
    first_labels = required_labels(data.id[0]).numpy()
    labels = np.zeros((places.total, *first_labels.shape[1:]), first_labels.dtype)
    gathered = np.zeros((count, places.total, first.classes), first.dtype)
    for number in range(data.ranks.rank, len(data.id), data.ranks.size):
        batch = data.id[number]
        rows = places.of(batch)
        labels[rows] = required_labels(batch).numpy()
        logits = store.read(number) if store else None
        if logits is None:
            logits = logits_of(networks, batch, device)
            if store:
                store.write(number, logits)
        gathered[:, rows] = logits
        on_batch(len(batch.positions))
    all_logits, labels = (data.ranks.total(torch.from_numpy(part)).numpy() for part in (gathered, labels))
    words = None if data.id[0].words is None else places.counts
    return CandidateLogits(task, all_logits, labels, temperature=temperature, words=words)


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
        return self.material.scoring_data(self.batch_size, self.ranks)

    @property
    def samples(self) -> float:
        """The number of samples that this process answers."""
        return self.material.samples / self.ranks.size

    @property
    def conditions(self) -> dict[str, Any]:
        """The model and the samples that every state depends on."""
        return {"model": fingerprint(self.material.checkpoint), **self.material.data_identity()}

    def store(self, pool: CandidatePool) -> Store | None:
        """Returns the folder of the logits: beside the selection; None on ranks that do not lead."""
        if self.selection is None or not self.ranks.leads:
            return None
        conditions = {
            **self.conditions,
            "candidates": [list(map(list, in_candidate_order(candidate.dropped))) for candidate in pool.dropped],
            "files": [fingerprint(member) for member in pool.files],
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
