"""Batches of inputs in a fixed order: texts by length, whole batches to each rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from hydractl.data.preprocessing import Preprocessor
from hydractl.data.samples import Samples
from hydractl.data.workers import made_by_workers
from hydractl.errors import DataError, OptionError


@dataclass(frozen=True)
class Batch:
    """The inputs of B samples. `positions` `[B]` say where they stand in the data set; `labels` `[B]` or None."""

    inputs: dict[str, Tensor]
    labels: Tensor | None
    positions: Tensor


@dataclass(frozen=True, eq=False)
class Batches(Dataset[Batch | DataError]):
    """The batches of one rank, made when asked for and as often as asked for.

    `plan` holds the positions of each of this rank's batches; `truncated` counts texts of the whole data set
    that lost their end.
    """

    samples: Samples
    preprocessor: Preprocessor
    plan: tuple[NDArray[np.int64], ...]
    workers: int = 0
    truncated: int = 0

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[Batch]:
        """Each batch in order.

        Raises:
            DataError: an image that cannot be read.
        """
        workers = min(self.workers, len(self))
        coming = made_by_workers(self, workers) if workers else map(self.__getitem__, range(len(self)))
        for made in coming:
            if isinstance(made, DataError):
                raise made
            yield made

    def __getitem__(self, index: int) -> Batch | DataError:
        """One batch; a DataError is returned, since raised in a worker it would come back as a traceback."""
        positions = self.plan[index]
        try:
            inputs = self.preprocessor(_at(self.samples.inputs, positions))
        except DataError as error:
            return error
        labels = self.samples.labels
        return Batch(
            inputs,
            None if labels is None else torch.from_numpy(labels[positions]),
            torch.from_numpy(positions),
        )


def make_batches(
    samples: Samples,
    preprocessor: Preprocessor,
    batch_size: int,
    by_length: bool = True,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> Batches:
    """The batches of one rank: every `world_size`-th, so batches are the same whatever the number of ranks.

    Args:
        batch_size: samples in each batch, the last may have fewer.
        by_length: texts with the most tokens first, so that padding is little and a lack of memory shows at once.
        workers: processes that decode and preprocess images; tokenizers run in threads of their own.

    Raises:
        OptionError: a batch size below 1.
    """
    if batch_size < 1:
        raise OptionError(f"`batch_size` {batch_size}: expected 1 or more")
    order = np.arange(len(samples))
    truncated = 0
    if samples.modality == "text" and preprocessor.text is not None:
        lengths, truncated = preprocessor.text.lengths(samples.inputs)
        order = np.argsort(-lengths, kind="stable") if by_length else order
        workers = 0
    starts = range(rank * batch_size, len(order), world_size * batch_size)
    plan = tuple(order[start : start + batch_size] for start in starts)
    return Batches(samples, preprocessor, plan, workers, truncated)


def _at(inputs: Sequence[object], positions: NDArray[np.int64]) -> Iterable[object]:
    """The inputs at some positions; images are read as they are asked for, so that they need not be held together."""
    first, last = int(positions[0]), int(positions[-1])
    if last - first == len(positions) - 1 and bool((np.diff(positions) == 1).all()):
        return inputs[first : last + 1]  # one read of the file instead of B
    return (inputs[int(position)] for position in positions)


class JoinedBatches(Sequence[Batch]):
    """Batches of several data sets one after the other; positions count on from one set to the next."""

    def __init__(self, sets: Sequence[Sequence[Batch]], sizes: Sequence[int]) -> None:
        """
        Args:
            sizes: how many samples each set holds.
        """
        starts = accumulate(sizes, initial=0)
        self._places = [(own, at, start) for own, start in zip(sets, starts, strict=False) for at in range(len(own))]

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> list[Batch]: ...
    def __getitem__(self, index: int | slice) -> Batch | list[Batch]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        own, at, start = self._places[index]
        return replace(own[at], positions=own[at].positions + start)


#: What batches may take that a search asks for in every round.
CACHED_BYTES = 2**30


class CachedBatches(Sequence[Batch]):
    """Batches that are asked for again and again: kept in memory up to `most_bytes`, beyond that read anew."""

    def __init__(self, batches: Batches, most_bytes: int = CACHED_BYTES) -> None:
        self._batches, self._room = batches, most_bytes
        self._kept: dict[int, Batch] = {}

    def __len__(self) -> int:
        return len(self._batches)

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> list[Batch]: ...
    def __getitem__(self, index: int | slice) -> Batch | list[Batch]:
        """A batch.

        Raises:
            DataError: an image that cannot be read.
        """
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if index in self._kept:
            return self._kept[index]
        batch = self._batches[index]
        if isinstance(batch, DataError):
            raise batch
        size = sum(tensor.nbytes for tensor in batch.inputs.values())
        if size <= self._room:
            self._room -= size
            self._kept[index] = batch
        return batch


class ToldBatches(Sequence[Batch]):
    """Batches that say of how many samples each is when it is taken."""

    def __init__(self, batches: Sequence[Batch], tell: Callable[[float], None]) -> None:
        self._batches, self._tell = batches, tell

    def __len__(self) -> int:
        return len(self._batches)

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> list[Batch]: ...
    def __getitem__(self, index: int | slice) -> Batch | list[Batch]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        batch = self._batches[index]
        self._tell(len(batch.positions))
        return batch
