"""Batches of inputs in a fixed order: texts by length, whole batches for each rank, made ahead by worker processes."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hydractl.data.samples import Samples
from hydractl.data.words import first_tokens
from hydractl.errors import DataError, OptionError
from hydractl.model.answering import RawPreprocessor, check_lengths, no_word

#: The memory for batches that a search reads in every round.
CACHED_BYTES = 2**30


@dataclass(frozen=True)
class Batch:
    """The inputs of B samples; `positions` `[B]` are their places in the data set, `labels` `[B]` or None.

    Where the model answers for words, `words` `[n,3]` are sample in the batch, first token and number of each that has
    a label, or of all without `labels` `[n]`; `spans` are the places of all words in their texts.
    `unread` tells why samples that are not among the B cannot be read, by their places in the data set.
    """

    inputs: dict[str, Tensor]
    labels: Tensor | None
    positions: Tensor
    words: Tensor | None = None
    spans: Sequence[Sequence[tuple[int, int]]] = ()
    unread: Mapping[int, str] = field(default_factory=dict)

    def answered(self, values: Tensor) -> Tensor:
        """Returns values of what the model answers, `[...,n,C]` of words from `[...,B,T,C]`, or samples as they are."""
        return values if self.words is None else values[..., self.words[:, 0], self.words[:, 1], :]

    def parts(self, size: int) -> Iterator["Batch"]:
        """Yields the batch in parts of so many samples, the last may have fewer."""
        for start in range(0, len(self.positions), size):
            rows: Any = slice(start, start + size)
            inputs, positions = {name: x[rows] for name, x in self.inputs.items()}, self.positions[rows]
            words = None
            if self.words is not None:
                rows = (self.words[:, 0] >= start) & (self.words[:, 0] < start + size)
                words = self.words[rows] - torch.tensor([start, 0, 0])
            yield Batch(inputs, None if self.labels is None else self.labels[rows], positions, words)

    def word_counts(self) -> NDArray[np.int64] | None:
        """Returns how many words each sample has, `[B]`; None where the model answers for samples.

        Raises:
            DataError: one has none.
        """
        if self.words is None:
            return None
        counts = np.bincount(self.words[:, 0].numpy(), minlength=len(self.positions))
        if len(bare := np.flatnonzero(counts == 0)):
            raise no_word(int(self.positions[bare[0]]))
        return counts

    @property
    def places(self) -> Tensor | None:
        """The place of each word's sentence in the data set, and the word's number there, `[n,2]`."""
        return None if self.words is None else torch.stack([self.positions[self.words[:, 0]], self.words[:, 2]], 1)


@dataclass(frozen=True, eq=False)
class Batches(Dataset[Batch | DataError]):
    """The batches of one rank, made each time they are read.

    `plan` holds the positions of each batch; `truncated` counts the texts of the whole data set that lost their end.
    """

    samples: Samples
    preprocessor: RawPreprocessor
    plan: tuple[NDArray[np.int64], ...]
    workers: int = 0
    truncated: int = 0
    skip_bad: bool = False  # whether batches leave out samples that cannot be read

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[Batch]:
        """Yields each batch in order.

        Raises:
            DataError: an image that cannot be read.
        """
        workers = min(self.workers, len(self))
        yield from map(readable, made_by_workers(self, workers) if workers else map(self.__getitem__, range(len(self))))

    def __getitem__(self, index: int) -> Batch | DataError:
        """Returns one batch, or a DataError; see `make_batch`."""
        positions = self.plan[index]
        inputs: Any = _at(self.samples.inputs, positions)
        if self.skip_bad:  # in the order of the data, so that `inputs` is a part of it
            return _readable_batch(self.preprocessor, inputs, positions)
        return make_batch(self.preprocessor, self.samples, inputs, positions)


def make_batch(
    preprocessor: RawPreprocessor, samples: Samples, inputs: Iterable[object], positions: NDArray[np.int64]
) -> Batch | DataError:
    """Returns the batch of some samples, or a DataError, which a worker would turn into a traceback if it raised it.

    Args:
        inputs: those at `positions`, as they are or augmented.
    """
    words, places = None, list[Any]()
    try:
        if preprocessor.by_word:
            inputs = list(inputs)
            words = first_tokens(places := preprocessor.words(inputs))
        tensors = preprocessor(inputs)
    except DataError as error:
        return error
    labels = None if samples.labels is None else torch.from_numpy(samples.labels[positions])
    if words is not None and labels is not None:
        labels = labels[words[:, 0], words[:, 2]]
        words, labels = words[labels >= 0], labels[labels >= 0]
    spans = [[(word.start, word.end) for word in sentence] for sentence in places]
    return Batch(tensors, labels, torch.from_numpy(positions), words, spans=spans)


def _readable_batch(
    preprocessor: RawPreprocessor, inputs: Sequence[Any], positions: NDArray[np.int64]
) -> Batch | DataError:
    """Returns the batch of the images that can be read, read one by one; without inputs if none can be."""
    good, unread = list[int](), dict[int, str]()

    def read() -> Iterator[Any]:
        for at, position in enumerate(positions.tolist()):
            try:
                image = inputs[at]
            except DataError as error:
                unread[position] = str(error)
                continue
            good.append(position)
            yield image

    images = read()
    first = next(images, None)
    try:
        tensors = {} if first is None else preprocessor(chain([first], images))
    except DataError as error:
        return error
    return Batch(tensors, None, torch.tensor(good, dtype=torch.long), unread=unread)


def readable(made: Batch | DataError) -> Batch:
    """Returns a batch; raises the error of one that could not be made."""
    if isinstance(made, DataError):
        raise made
    return made


def make_batches(
    samples: Samples,
    preprocessor: RawPreprocessor,
    batch_size: int,
    *,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> Batches:
    """Returns every `world_size`-th batch, those of one rank, so that batches do not depend on the number of ranks.

    Args:
        batch_size: samples in each batch; the last may have fewer.
        workers: processes that decode and preprocess images; tokenizers run in threads of their own.

    Raises:
        OptionError: a batch size below 1.
    """
    if batch_size < 1:
        raise OptionError(f"`batch_size` {batch_size}: expected 1 or more")
    order = np.arange(len(samples))
    truncated = 0
    if samples.modality == "text":
        lengths, truncated = preprocessor.lengths(samples.inputs)
        check_lengths(lengths, f"{samples.name}: sample")
        # The longest first saves padding, and shows a lack of memory at once.
        order = np.argsort(-lengths, kind="stable")
        workers = 0
    starts = range(rank * batch_size, len(order), world_size * batch_size)
    plan = tuple(order[start : start + batch_size] for start in starts)
    return Batches(samples, preprocessor, plan, workers=workers, truncated=truncated)


def _at(inputs: Sequence[object], positions: NDArray[np.int64]) -> Iterable[object]:
    """Returns the inputs at some positions; images are read one by one, never all held together."""
    first, last = int(positions[0]), int(positions[-1])
    if last - first == len(positions) - 1 and bool((np.diff(positions) == 1).all()):
        return inputs[first : last + 1]  # one read of the file instead of B
    return (inputs[int(position)] for position in positions)


class JoinedBatches(Sequence[Batch]):
    """Batches of several data sets one after the other; positions count on from one set to the next."""

    def __init__(
        self,
        sets: Sequence[Sequence[Batch]],
        sizes: Sequence[int],
        advance: Callable[[float], None] = lambda samples: None,
    ) -> None:
        """
        Args:
            sizes: the number of samples of each set.
            advance: receives the number of samples of each batch that is read.
        """
        starts = accumulate(sizes, initial=0)
        self._places = [
            (batches, at, start) for batches, start in zip(sets, starts, strict=False) for at in range(len(batches))
        ]
        self._advance = advance

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        batches, at, start = self._places[index]
        batch = batches[at]
        self._advance(len(batch.positions))
        return replace(batch, positions=batch.positions + start)


class CachedBatches(Sequence[Batch]):
    """Batches for repeated reading, kept in memory up to `most_bytes` and made again beyond that."""

    def __init__(self, batches: Batches, most_bytes: int = CACHED_BYTES) -> None:
        self._batches, self._room = batches, most_bytes
        self._kept: dict[int, Batch] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: Any) -> Any:
        """Returns a batch.

        Raises:
            DataError: an image that cannot be read.
        """
        if index in self._kept:
            return self._kept[index]
        batch = readable(self._batches[index])
        size = sum(tensor.nbytes for tensor in batch.inputs.values())
        if size <= self._room:
            self._room -= size
            self._kept[index] = batch
        return batch


#: Modules that every worker needs. The server that workers are forked from loads them once, if they are installed.
LOADED_ONCE = (
    "hydractl.training.batches",
    "torchvision.transforms.v2",
    "transformers.image_processing_backends",
    "transformers.image_processing_utils",
)


def made_by_workers(batches: Dataset[Any], workers: int, order: Sequence[int] | None = None) -> Iterator[Any]:
    """Returns the items of a data set in order, made by worker processes.

    Beside ranks, workers come from a server process without threads. A rank has threads, and a fork while one of them
    holds a lock of the interpreter makes a worker that waits forever (CPython 3.11; once in a few hundred forks).

    Args:
        workers: one or more.
        order: the indices to make, all of them if None.
    """
    where: dict[str, Any] = {}
    if dist.is_available() and dist.is_initialized() and "forkserver" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(LOADED_ONCE))
        where = {"multiprocessing_context": context, "worker_init_fn": _follow_rank}
    return iter(DataLoader(batches, batch_size=None, sampler=order, num_workers=workers, **where))


def _follow_rank(_worker: int) -> None:
    """Ends a worker with its rank. torch's own check watches the server process, which outlives a killed rank."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # the rank handles Ctrl-C
    threading.Thread(target=_exit_after, args=(multiprocessing.parent_process(),), daemon=True).start()


def _exit_after(parent: BaseProcess) -> NoReturn:
    parent.join()
    os._exit(1)
