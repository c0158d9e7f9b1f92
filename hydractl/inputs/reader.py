"""The inputs of `predict` as a data set that a system answers part after part; what cannot be read keeps its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hydractl.data.batching import Batch, Batches, make_batches
from hydractl.data.open import is_empty
from hydractl.data.ranks import Ranks
from hydractl.data.reading import Reading
from hydractl.data.samples import Samples
from hydractl.errors import DataError, NotFiniteError
from hydractl.inputs.rows import InputRow, Rows
from hydractl.model.answering import RawPreprocessor
from hydractl.model.hydra import Hydra
from hydractl.systems.networks import NetworkSystem
from hydractl.systems.onnx import OnnxModel, OnnxSystem
from hydractl.systems.system import EvaluationData, Running, SetKey
from hydractl.tasks.task import Answers
from hydractl.text import shortened
from hydractl.watch import Watcher

PART = SetKey("id", "inputs", labelled=False)


@dataclass(eq=False)
class Reader:
    """Answers inputs by a model, part after part from any part on; images are read ahead across parts.

    Attributes:
        entries: all inputs.
        part: how many of them make a part; the last may have fewer.
        workers: processes that read images ahead, each two batches; with 0 this one reads.
        stand_in: what is answered where no input of a part can be read; None to raise DataError.
        good: the places of those inputs of the last part that were read.
        bad: the reason for each place that could not be.
    """

    model: Hydra | OnnxModel
    entries: Sequence[InputRow]
    part: int
    batch_size: int
    workers: int
    watch: Watcher
    skip_bad: bool
    stand_in: Any
    good: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    _first: int = 0  # number of the part's first input
    _truncated: int = 0
    _spans: dict[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    _images: Iterator[Batch] | None = None

    def _system(self, samples: Samples) -> NetworkSystem | OnnxSystem:
        """Returns the model as a system that answers a part."""
        running = Running(
            device=torch.device("cpu"),  # unused: the model is in memory
            dtype=None,
            batch_size=self.batch_size,
            reading=Reading(),
            ranks=Ranks(),
            in_parallel=map,
            on_note=self.watch.note,
        )
        data = EvaluationData({PART: samples}, read=self._batches)
        if isinstance(self.model, Hydra):
            return NetworkSystem((), loaded=(self.model,), data=data, running=running)
        return OnnxSystem(Path(self.model.graph.file.name), loaded=self.model, data=data, running=running)

    def answer(self, entries: Sequence[InputRow], first: int, on_batch: Callable[[int], None]) -> Answers:
        """Returns the answers to those inputs of a part that can be read.

        Args:
            first: the number of the first among all.
            on_batch: receives the size of each finished batch.

        Raises:
            DataError: an input cannot be read and is not to be skipped, or none can be.
            NotFiniteError: an answer is not finite.
        """
        self._first, self._truncated, self._spans, self.good, self.bad = first, 0, {}, [], {}
        values: Sequence[Any] = Rows(entries)
        if self.model.spec.modality == "text":
            values = [*self._texts(entries)] or [self._stood_in()]
        system = self._system(Samples("inputs", self.model.spec.modality, values))
        try:
            with torch.inference_mode():  # images are prepared in it too
                answers = system.answers(PART, "typicality", on_batch)
        except NotFiniteError as error:
            name = entries[self.good[error.sample or 0]].name
            raise NotFiniteError(f"{shortened(name, 80)}: {error}") from error
        if self._truncated:
            lost = f"{self._truncated} of {len(entries)} texts are too long for the model and were cut"
            self.watch.note(f"note: {lost}")
        if not self._spans:
            return replace(answers, truncated=self._truncated)
        spans = [self._spans[at] for at in range(len(values))]
        return replace(answers, truncated=self._truncated, texts=list(map(str, values)), spans=spans)

    def _texts(self, entries: Sequence[InputRow]) -> Iterator[Any]:
        assert self.model.preprocessor is not None
        lengths = self.model.preprocessor.lengths
        may_be_bare = not lengths([""])[0].all()  # most tokenizers add tokens to each text
        for at, entry in enumerate(entries):
            try:
                value = entry.read()
            except DataError as error:
                if not self.skip_bad:
                    raise
                self._skip(at, str(error))
                continue
            if is_empty(value) or (may_be_bare and not lengths([value])[0].all()):
                self.bad[at] = f"row {entry.row}: empty text"
            else:
                self.good.append(at)
                yield value

    def _skip(self, at: int, reason: str) -> None:
        self.bad[at] = reason
        self.watch.note(f"note: unreadable: {reason}")

    def _stood_in(self) -> Any:
        if self.stand_in is None:
            first = next(iter(self.bad.values()))
            raise DataError(f"none of {len(self.bad)} inputs can be read; the first: {first}")
        return self.stand_in

    def _batches(self, samples: Samples, preprocessor: RawPreprocessor) -> Iterator[Batch]:
        """Yields the batches of a part."""
        if self.model.spec.modality == "image":
            yield from self._of_images(len(samples), preprocessor)
            return
        batches = make_batches(samples, preprocessor, self.batch_size)
        self._truncated = batches.truncated
        for batch in batches:
            self._spans |= zip(batch.positions.tolist(), batch.spans, strict=False)
            yield batch

    def _of_images(self, count: int, preprocessor: RawPreprocessor) -> Iterator[Batch]:
        """Yields the next batches of the images that are read ahead, numbered among those that can be read."""
        self._images = self._images or iter(self._ahead(preprocessor))
        for batch in islice(self._images, ceil(count / self.batch_size)):
            for place, reason in batch.unread.items():
                self._skip(place - self._first, reason)
            start = len(self.good)
            self.good += [place - self._first for place in batch.positions.tolist()]
            if batch.inputs:
                yield replace(batch, positions=torch.arange(start, len(self.good)))
        if not self.good:
            yield Batch(preprocessor([self._stood_in()]), None, torch.zeros(1, dtype=torch.long))

    def _ahead(self, preprocessor: RawPreprocessor) -> Batches:
        """Returns the batches of all images from this part on; each lies in one part."""
        parts = range(self._first, len(self.entries), self.part)
        plan = (
            np.arange(at, min(at + self.batch_size, start + self.part, len(self.entries)))
            for start in parts
            for at in range(start, min(start + self.part, len(self.entries)), self.batch_size)
        )
        images = Samples("inputs", "image", Rows(self.entries))
        return Batches(images, preprocessor, tuple(plan), workers=self.workers, skip_bad=self.skip_bad)
