"""What every candidate says of every selection sample: one pass over the data, kept on disk as it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.data.batching import Batch
from hydractl.data.ranks import Ranks
from hydractl.errors import DataError, NotFiniteError
from hydractl.selection.greedy import Answers
from hydractl.selection.store import Store


class Answering(Protocol):
    """Networks that answer together.

    Attributes:
        size: how many they are.
        dtype: of their logits in NumPy, at least float32.
        temperature: of their logits.
    """

    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def temperature(self) -> float: ...
    def logits(self, inputs: Mapping[str, Tensor], /) -> Tensor:
        """`[K,B,C]`, on any device."""


@dataclass(frozen=True, eq=False)
class SelectionData:
    """The samples that members are selected on, in batches that are the same on every rank.

    Attributes:
        inside: batches of the ID samples, with labels.
        outside: batches of each OOD set.
        sizes: how many samples the ID data and each set hold, the ID data under "".
        classes: C.
    """

    inside: Sequence[Batch]
    outside: Mapping[str, Sequence[Batch]]
    sizes: Mapping[str, int]
    classes: int
    ranks: Ranks = field(default_factory=Ranks)


def answer(
    networks: Sequence[Answering],
    data: SelectionData,
    device: torch.device,
    temperature: float = 1.0,
    store: Store | None = None,
    on_batch: Callable[[int], None] = lambda samples: None,
) -> Answers:
    """The logits of all networks on all samples.

    Args:
        networks: whose candidates follow one another in the answers.
        store: keeps each batch's logits, so that an interrupted run goes on.
        on_batch: told the size of each finished batch.

    Raises:
        DataError: a sample cannot be read, ID samples have no labels, or a logit is not finite.
    """

    count = sum(network.size for network in networks)

    def of(name: str, batches: Sequence[Batch]) -> NDArray[np.floating]:
        found = np.zeros((count, data.sizes[name], data.classes), networks[0].dtype)
        for number in range(data.ranks.rank, len(batches), data.ranks.size):
            batch = batches[number]
            logits = store.read(name, number) if store else None
            if logits is None:
                logits = logits_of(networks, batch, device)
                if store:
                    store.write(name, number, logits)
            found[:, batch.positions.numpy()] = logits
            on_batch(len(batch.positions))
        return data.ranks.total(torch.from_numpy(found)).numpy()

    inside = of("", data.inside)
    return Answers(inside, _labels(data), {name: of(name, part) for name, part in data.outside.items()}, temperature)


def logits_of(networks: Sequence[Answering], batch: Batch, device: torch.device) -> NDArray[np.floating]:
    """What all networks say of a batch, `[K,B,C]`, at least float32.

    Raises:
        NotFiniteError: a logit is not finite.
    """
    inputs = {name: tensor.to(device) for name, tensor in batch.inputs.items()}
    parts = [network.logits(inputs) for network in networks]
    # Half precision ends here: decisions are made of float32.
    logits = torch.cat([part.to("cpu", torch.promote_types(part.dtype, torch.float32)) for part in parts]).numpy()
    if not np.isfinite(logits).all():
        raise NotFiniteError("a candidate's logits are not finite on this data: try `dtype` float32")
    return logits


def _labels(data: SelectionData) -> NDArray[np.int64]:
    labels = np.zeros(data.sizes[""], np.int64)
    for batch in data.inside:
        if batch.labels is None:
            raise DataError("the ID samples have no labels: a selection needs them")
        labels[batch.positions.numpy()] = batch.labels.numpy()
    return labels
