"""Saves a system's logits on their way through, in the layout that `SavedPredictions` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hydractl.artifacts import read_artifact
from hydractl.checkpoint.atomic import write_atomically, write_bytes
from hydractl.checkpoint.writer import layout, tensor_bytes
from hydractl.errors import DataError, OutputError
from hydractl.evaluation.cost import Cost
from hydractl.evaluation.predictions import ABOUT, FORMAT, VERSION, SavedPredictions
from hydractl.evaluation.predictor import LogitBatch, Predictor
from hydractl.evaluation.sets import SetKey


@dataclass(frozen=True, eq=False)
class SavingSystem:
    """A system whose logits are saved on their way through, and not computed again where they are saved already."""

    system: Predictor
    folder: Path
    about: Mapping[str, Any]
    resume: bool
    force: bool

    @property
    def temperature(self) -> float:
        return self.system.temperature

    @property
    def cost(self) -> Cost | None:
        return self.system.cost

    def samples(self, key: SetKey) -> int:
        return self.system.samples(key)

    def logits(self, key: SetKey) -> Iterator[LogitBatch]:
        path = self.folder / f"{key.path}.safetensors"
        if self.resume and path.exists():
            yield from self._saved(key, path)
            return
        with saving(path, self.samples(key), self.system.logits(key), self.force) as batches:
            yield from batches

    def start(self) -> None:
        """Makes the folder and says in it what computes the predictions.

        Raises:
            OutputError: the folder holds predictions already and they are not to be replaced, or not of this system.
        """
        path = self.folder / ABOUT
        if self.resume and path.exists():
            if dict(read_artifact(str(path), FORMAT, VERSION).content) != dict(self.about):
                raise OutputError(f"{path}: is of another system or data: name another folder, or leave out --resume")
            return
        make_folder(self.folder)
        write_bytes(path, f"{json.dumps(self.about, indent=2, ensure_ascii=False)}\n".encode(), self.force)

    def _saved(self, key: SetKey, path: Path) -> Iterator[LogitBatch]:
        saved = SavedPredictions(self.folder, {key: path})
        if (found := saved.samples(key)) != (expected := self.samples(key)):
            raise DataError(f"{path}: holds {found} samples, the data has {expected}: remove the file")
        yield from saved.logits(key)


def about_json(
    id_name: str, labels: Sequence[str] | None, temperature: float, cost: Cost | None, networks: Sequence[Any]
) -> dict[str, Any]:
    """What a folder of predictions says of itself.

    Args:
        id_name: what reports call the in-distribution set.
        networks: what computed them, plain JSON.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "id_name": id_name,
        "labels": None if labels is None else list(labels),
        "temperature": temperature,
        "cost": None if cost is None else asdict(cost),
        "networks": list(networks),
    }


def make_folder(folder: Path) -> None:
    """Makes a folder and those it lies in.

    Raises:
        OutputError: the disk refuses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot make the folder: {error.strerror}") from error


@contextmanager
def saving(path: Path, samples: int, batches: Iterator[LogitBatch], force: bool) -> Iterator[Iterator[LogitBatch]]:
    """The same batches, each written to the file on its way through; the file appears when the block ends well.

    Args:
        path: FOLDER/SET.safetensors.
        samples: N, of all batches together.

    Raises:
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    make_folder(path.parent)
    with write_atomically(path, force) as file:
        yield _written(file, samples, batches)


def _written(file: Any, samples: int, batches: Iterator[LogitBatch]) -> Iterator[LogitBatch]:
    starts: dict[str, int] = {}
    for batch in batches:
        members, _, classes = batch.member_logits.shape
        if not starts:
            tensors = {"logits": (batch.member_logits.dtype, (members, samples, classes))}
            if batch.labels is not None:
                tensors["labels"] = (torch.int64, (samples,))  # type: ignore[assignment]
            header, starts = layout(tensors, {"format": "pt"})
            file.write(header)
        # Texts come in order of length: every sample has its own place in the file.
        row = classes * batch.member_logits.element_size()
        for first, count, position in _runs(batch.positions):
            for member in range(members):
                file.seek(starts["logits"] + (member * samples + position) * row)
                file.write(tensor_bytes(batch.member_logits[member, first : first + count]))
            if batch.labels is not None:
                file.seek(starts["labels"] + position * 8)
                file.write(tensor_bytes(batch.labels[first : first + count]))
        yield batch


def _runs(positions: Tensor) -> Iterator[tuple[int, int, int]]:
    """Ranges of the batch whose samples are neighbours in the set: first row, number of rows, first position."""
    breaks = (positions[1:] - positions[:-1] != 1).nonzero().flatten() + 1
    firsts = [0, *breaks.tolist()]
    for first, end in zip(firsts, [*firsts[1:], len(positions)], strict=True):
        yield first, end - first, int(positions[first])
