"""A checkpoint as a value: a network, what its members keep and share, and its tensors, still on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.calibration import NOT_CALIBRATED, Calibration
from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.layout import KeptUnits, Layout, stored_shapes
from hydractl.checkpoint.slots import Slot, slots
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tensors import DTYPES, StoredNumbers, TensorMap, tensor_bytes
from hydractl.errors import CheckpointError, OptionError
from hydractl.text import distinct, shortened

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Checkpoint:
    """A network of M >= 1 members.

    `tensors` carry the names and shapes of `stored_shapes`; those named in `shared` are stored once for all members
    (with one member: all of them). `labels` stand in class order, each
    once: of two classes of one name the second is numbered. `preprocessing` and `provenance` are plain JSON.
    """

    name: str  # in messages: the reference it was opened with
    family: str
    config: Mapping[str, Any]  # the source's own config.json
    spec: ModelSpec
    heads: KeptHeads
    shared: frozenset[str]
    tensors: TensorMap
    labels: tuple[str, ...] | None = None
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    # It belongs to these weights: whatever changes them drops it. No part of the network's identity.
    calibration: Calibration = NOT_CALIBRATED
    provenance: Mapping[str, Any] = field(default_factory=dict)
    units: KeptUnits = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Names are keys of answers, tables and counts; files and exports of other libraries keep theirs in `config`.
        if self.labels is not None:
            object.__setattr__(self, "labels", distinct(self.labels))

    @property
    def layout(self) -> Layout:
        """The heads and units that members keep, and the tensors that they share."""
        return Layout(self.heads, self.shared, self.units)

    @property
    def members(self) -> int:
        """M, the number of members."""
        return self.layout.members

    def with_layout(self, layout: Layout, spec: ModelSpec, tensors: TensorMap) -> Checkpoint:
        """Returns a network of other members: what these keep and share, and its tensors; no fit is of it."""
        return replace(self, spec=spec, tensors=tensors, calibration=NOT_CALIBRATED, **vars(layout))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its weights; if they differ, the one that holds all of them."""
        import torch

        kinds = {tensor.dtype for tensor in self.tensors.values() if tensor.dtype.is_floating_point}
        return reduce(torch.promote_types, kinds)

    def verify(self) -> None:
        """Raises CheckpointError unless the tensors are exactly those that spec and layout call for."""
        expected = stored_shapes(self.spec, self.layout)
        if missing := sorted(expected.keys() - self.tensors.keys()):
            raise CheckpointError(
                f"{self.name}: tensors are missing: {shorten(missing)}: the file is incomplete, fetch or write it again"
            )
        if extra := sorted(self.tensors.keys() - expected.keys()):
            raise CheckpointError(f"{self.name}: tensors that no part of a {self.family} claims: {shorten(extra)}")
        for name, shape in expected.items():
            if (stored := self.tensors[name].shape) != shape:
                raise CheckpointError(
                    f"{self.name}: {name} has shape {list(stored)}, expected {list(shape)}: "
                    "do the weights belong to this config or manifest?"
                )
            kind = self.tensors[name].kind
            if "F" not in kind:
                raise CheckpointError(
                    f"{self.name}: {name} has type {DTYPES[kind]}, which weights cannot have: save it as float32"
                )
        if self.calibration.ood is not None:
            self.calibration.ood.verify(self.name, self._ood_sizes())

    def _ood_sizes(self) -> dict[str, int]:
        """Returns the sizes of what an OOD score stores, by the letters of its axes."""
        spec, members = self.spec, self.members
        tower = spec.towers[0]
        hidden = tower.layers - 1  # the last layer is what the classifier reads
        shared = min(trunk_depth(spec, self.layout, tower.name), hidden)
        copies = shared + (hidden - shared) * members
        sizes = {"M": members, "C": spec.classes or 0, "D": spec.features}
        width = tower.width if hidden else spec.features
        return {**sizes, "d": width, "L": tower.layers, "P": tower.layers + 1, "S": copies}

    def slots(self) -> dict[str, Slot]:
        """Returns the tensor-name table of this network."""
        return slots(self.spec)


def trunk_depth(spec: ModelSpec, layout: Layout, tower: str) -> int:
    """Returns the number of leading layers of a tower that all members share; they are computed once.

    It is 0 if members do not share the embeddings.
    """
    separate = {name: slot for name, slot in slots(spec).items() if slot.tower == tower and name not in layout.shared}
    if any(name.startswith(f"{tower}.embeddings.") for name in separate):
        return 0
    depth = spec.tower(tower).layers
    apart = [slot.layer for slot in separate.values() if slot.layer is not None]
    return min([*apart, *(layer for layer in range(depth) if layout.differ(tower, layer))], default=depth)


def common_layer(spec: ModelSpec, layout: Layout, tower: str) -> int | None:
    """Returns the layer whose attention differs between members that still read the same hidden state, if any."""
    table = slots(spec)
    separate = [name for name in table if table[name].tower == tower and name not in layout.shared]
    first = table[separate[0]] if separate else None
    if first is None or first.layer is None or not first.is_attention:
        return None
    if any(layout.differ(tower, layer) for layer in range(first.layer)):
        return None
    norm = f"{tower}.layers.{first.layer}.attention_norm."
    # If the norm before the attention (pre-norm) differs, members read different numbers already.
    if spec.tower(tower).pre_norm and any(name.startswith(norm) for name in separate):
        return None
    return first.layer


def identity(checkpoint: Checkpoint) -> str:
    """Returns the SHA-256 over the sorted tensor names, dtypes, shapes and bytes of the network, as hexadecimal digits.

    Names are this project's own, so one network has one identity whether it lies in a folder, in shards or in a
    file of ours, and whichever spelling its tensors have there. Where units are missing, those that members keep count
    too: shared tensors with other units are another model.
    """
    return tensors_identity(checkpoint.tensors, checkpoint.units)


def tensors_identity(tensors: TensorMap, units: KeptUnits | None = None) -> str:
    """Returns the identity of any tensors by name, and of the units that members keep of them."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.kind} {list(tensor.shape)}\n".encode())
        load = tensor.load
        digest.update(load.raw() if isinstance(load, StoredNumbers) else tensor_bytes(load()))
    if units:
        digest.update(json.dumps(units, sort_keys=True).encode())
    return digest.hexdigest()


def require_one_member(checkpoint: Checkpoint) -> None:
    """Raises OptionError if the checkpoint has several members; only single networks can be pruned."""
    if checkpoint.members > 1:
        raise OptionError(f"{checkpoint.name}: has {checkpoint.members} members: prune each before fusing them")


def shorten(names: list[str], most: int = 5) -> str:
    """Returns a few names and a count of the rest, for one line of an error."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return shortened(", ".join(names[:most]), 150) + more
