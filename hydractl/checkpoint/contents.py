"""A checkpoint as a value: a network, what its members keep and share, and its tensors, still on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.ood import FittedOod
from hydractl.checkpoint.slots import ADAPTER, KEPT, Slot, is_adapted, slots, stored_shape
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tensors import DTYPES, StoredNumbers, TensorMap, tensor_bytes
from hydractl.errors import CheckpointError, OptionError
from hydractl.text import shortened

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Acceptance:
    """The confidence above which a sample looks ID, of a file that was calibrated before there was `FittedOod`.

    Attributes:
        rate: the share of ID samples to accept, above 0 and up to 1.
        msp: the least maximum softmax probability of an accepted sample, 0 to 1, after the temperature.
    """

    rate: Annotated[float, Field(gt=0, le=1)]
    msp: Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Checkpoint:
    """A network of M >= 1 members.

    `tensors` carry the names of `slots(spec)` in the shapes of `stored_shape`; those named in `shared` are
    stored once for all members (with one member: all of them). `labels` stand in class order. `preprocessing` and
    `provenance` are plain JSON.
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
    temperature: float | None = None
    # Temperature, acceptance and OOD score belong to these weights: whatever changes the weights drops them.
    acceptance: Acceptance | None = None
    ood: FittedOod | None = None  # no part of the network's identity
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def members(self) -> int:
        """M, the number of members."""
        return len(next(iter(self.heads.values()))[0])

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its weights; if they differ, the one that holds all of them."""
        import torch

        kinds = {tensor.dtype for tensor in self.tensors.values() if tensor.dtype.is_floating_point}
        return reduce(torch.promote_types, kinds)

    def verify(self) -> None:
        """Raises CheckpointError unless the tensors are exactly those that spec, heads and sharing call for."""
        expected = {
            name: stored_shape(slot, self.spec, self.heads, name in self.shared)
            for name, slot in slots(self.spec).items()
        }
        if missing := sorted(expected.keys() - self.tensors.keys()):
            raise CheckpointError(f"{self.name}: tensors are missing: {shorten(missing)}: the file is incomplete")
        if extra := sorted(self.tensors.keys() - expected.keys()):
            raise CheckpointError(f"{self.name}: tensors that no part of a {self.family} claims: {shorten(extra)}")
        for name, shape in expected.items():
            if (found := self.tensors[name].shape) != shape:
                raise CheckpointError(
                    f"{self.name}: {name} has shape {list(found)}, expected {list(shape)}: "
                    "do the weights belong to this config or manifest?"
                )
            kind = self.tensors[name].kind
            if "F" not in kind and not name.endswith(f".{KEPT}"):
                raise CheckpointError(
                    f"{self.name}: {name} is of {DTYPES[kind]}, which weights cannot be: save it as float32"
                )
        if self.spec.adapter is not None:
            self._verify_adapter()
        if self.ood is not None:
            self.ood.verify(self.name, self.members, self.spec.classes, self.spec.features)

    def _verify_adapter(self) -> None:
        """Raises CheckpointError unless members share what they adapt, and have adapters of their own."""
        table = self.slots()
        adapted = [name for name, slot in table.items() if is_adapted(self.spec.adapter, name, slot)]
        layers = {(table[name].tower, table[name].layer) for name in adapted if "attention." in name}
        for name, slot in table.items():
            own = slot.group == ADAPTER
            in_adapted = name in adapted or (slot.is_attention and (slot.tower, slot.layer) in layers)
            if (own or in_adapted) and own == (name in self.shared):
                raise CheckpointError(
                    f"{self.name}: {name} is {'one for all members' if own else 'of each member'}, should be "
                    f"{'of each member' if own else 'one for all'} where members adapt it: write the file again"
                )
            if own and name.endswith(f".{KEPT}"):
                self._verify_kept(name)
        for tower, layer in layers:
            if tower is not None and layer is not None and len(set(self.heads[tower][layer])) > 1:
                raise CheckpointError(
                    f"{self.name}: heads.{tower}.{layer} differ between members, whose attention there is shared"
                )

    def _verify_kept(self, name: str) -> None:
        tensor, table = self.tensors[name], self.slots()
        features = table[f"{name.removesuffix(f'.{KEPT}')}.weight"].shape[1]
        if tensor.kind != "I32":
            raise CheckpointError(f"{self.name}: {name} is of {DTYPES[tensor.kind]}, should be of int32")
        kept = tensor.load()
        if not (kept.diff() > 0).all() or int(kept.min()) < 0 or int(kept.max()) >= features:
            raise CheckpointError(
                f"{self.name}: {name} should hold numbers from 0 to {features - 1}, ascending: write the file again"
            )

    def slots(self) -> dict[str, Slot]:
        """Returns the tensor-name table of this network."""
        return slots(self.spec)


def trunk_depth(spec: ModelSpec, shared: frozenset[str], tower: str) -> int:
    """Returns the number of leading layers of a tower that all members share; they are computed once.

    It is 0 if members do not share the embeddings.
    """
    separate = {name: slot for name, slot in slots(spec).items() if slot.tower == tower and name not in shared}
    if any(name.startswith(f"{tower}.embeddings.") for name in separate):
        return 0
    layers = [slot.layer for slot in separate.values() if slot.layer is not None]
    return min(layers, default=spec.tower(tower).layers)


def common_layer(spec: ModelSpec, shared: frozenset[str], tower: str) -> int | None:
    """Returns the layer whose attention differs between members that still read the same hidden state, if any."""
    table = slots(spec)
    separate = [name for name in table if table[name].tower == tower and name not in shared]
    first = table[separate[0]] if separate else None
    if first is None or not first.is_attention:
        return None
    norm = f"{tower}.layers.{first.layer}.attention_norm."
    # If the norm before the attention (pre-norm) differs, members read different numbers already.
    if spec.tower(tower).pre_norm and any(name.startswith(norm) for name in separate):
        return None
    return first.layer


def identity(checkpoint: Checkpoint) -> str:
    """Returns the SHA-256 over the sorted tensor names, dtypes, shapes and bytes of the network, as hexadecimal digits.

    Names are this project's own, so one network has one identity whether it lies in a folder, in shards or in a
    file of ours, and whichever spelling its tensors have there.
    """
    return tensors_identity(checkpoint.tensors)


def tensors_identity(tensors: TensorMap) -> str:
    """Returns the identity of any tensors by name."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.kind} {list(tensor.shape)}\n".encode())
        load = tensor.load
        digest.update(load.raw() if isinstance(load, StoredNumbers) else tensor_bytes(load()))
    return digest.hexdigest()


def require_one_member(checkpoint: Checkpoint) -> None:
    """Raises OptionError if the checkpoint has several members; only single networks can be pruned."""
    if checkpoint.members == 1:
        return
    if checkpoint.spec.adapter is None:
        raise OptionError(f"{checkpoint.name}: has {checkpoint.members} members: prune each before fusing them")
    raise OptionError(
        f"{checkpoint.name}: has {checkpoint.members} members, which adapt weights that all of them share: prune the "
        "network, then make the ensemble of the pruned one"
    )


def shorten(names: list[str], most: int = 5) -> str:
    """Returns a few names and a count of the rest, for one line of an error."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return shortened(", ".join(names[:most]), 150) + more
