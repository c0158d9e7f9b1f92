"""Saves a system's answers on their way through, in the layout that `SavedPredictions` reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from hydractl.artifacts import json_text
from hydractl.checkpoint.atomic import write_atomically, write_bytes
from hydractl.checkpoint.writer import layout, tensor_bytes
from hydractl.errors import DataError, OutputError
from hydractl.evaluation.about import FORMAT, VERSION
from hydractl.evaluation.cost import Cost
from hydractl.evaluation.predictions import ABOUT, CLASSIFIER, SavedPredictions
from hydractl.evaluation.predictor import AnsweredBatch, Classifier, Predictor
from hydractl.evaluation.sets import SetKey


@dataclass(frozen=True, eq=False)
class SavingPredictor:
    """A predictor whose answers are saved on their way through, and not computed again where they lie saved already.

    Attributes:
        about: what the folder says of itself, see `about_json`.
        features: whether they are saved too.
        resume: whether what lies there already counts.
    """

    predictor: Predictor
    folder: Path
    about: Mapping[str, Any]
    features: bool
    resume: bool
    force: bool

    @property
    def labels(self) -> tuple[str, ...] | None:
        return self.predictor.labels

    @property
    def temperature(self) -> float:
        return self.predictor.temperature

    @property
    def cost(self) -> Cost | None:
        return self.predictor.cost

    @property
    def classifier(self) -> Classifier | None:
        return self.predictor.classifier

    def samples(self, key: SetKey) -> int:
        return self.predictor.samples(key)

    def answers(self, key: SetKey, features: bool = False) -> Iterator[AnsweredBatch]:
        path = self.folder / f"{key.path}.safetensors"
        if self.resume and path.exists():
            yield from self._saved(key, path, features)
            return
        with saving(path, self.samples(key), self.predictor.answers(key, features), self.force) as batches:
            yield from batches

    def start(self) -> None:
        """Makes the folder and says in it what computes the predictions, with the classifier where features are saved.

        Raises:
            OutputError: the folder holds predictions already and they are not to be replaced, or not of this system.
        """
        self._write(ABOUT, f"{json_text(self.about, self.folder)}\n".encode())
        classifier = self.classifier if self.features else None
        if classifier is not None:
            self._write(f"{CLASSIFIER}.safetensors", save(classifier._asdict(), {"format": "pt"}))

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        if not (self.resume and path.exists()):
            make_folder(self.folder)
            write_bytes(path, content, self.force)
        elif path.read_bytes() != content:
            raise OutputError(f"{path}: is of another system or data: name another folder, or leave out `resume`")

    def _saved(self, key: SetKey, path: Path, features: bool) -> Iterator[AnsweredBatch]:
        saved = SavedPredictions(self.folder, {key: path})
        if (found := saved.samples(key)) != (expected := self.samples(key)):
            raise DataError(f"{path}: holds {found} samples, the data has {expected}: remove the file")
        yield from saved.answers(key, features)


def about_json(id_name: str, predictor: Predictor, networks: Sequence[Any]) -> dict[str, Any]:
    """What a folder of predictions says of itself.

    Args:
        id_name: what reports call the in-distribution set.
        networks: what computed them, plain JSON.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "id_name": id_name,
        "labels": None if predictor.labels is None else list(predictor.labels),
        "temperature": predictor.temperature,
        "cost": None if predictor.cost is None else asdict(predictor.cost),
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
def saving(
    path: Path, samples: int, batches: Iterator[AnsweredBatch], force: bool
) -> Iterator[Iterator[AnsweredBatch]]:
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


def _written(file: Any, samples: int, batches: Iterator[AnsweredBatch]) -> Iterator[AnsweredBatch]:
    starts: dict[str, int] = {}
    for batch in batches:
        arrays = {"logits": batch.member_logits}
        if batch.features is not None:
            arrays["features"] = batch.features
        if not starts:
            header, starts = _layout(arrays, batch.labels is not None, samples)
            file.write(header)
        # Texts come in order of length: every sample has its own place in the file.
        for first, count, position in _runs(batch.positions):
            for name, array in arrays.items():
                row = array.shape[-1] * array.element_size()
                for member, rows in enumerate(array):
                    file.seek(starts[name] + (member * samples + position) * row)
                    file.write(tensor_bytes(rows[first : first + count]))
            if batch.labels is not None:
                file.seek(starts["labels"] + position * 8)
                file.write(tensor_bytes(batch.labels[first : first + count]))
        yield batch


def _layout(arrays: Mapping[str, Tensor], labelled: bool, samples: int) -> tuple[bytes, dict[str, int]]:
    """The header of a file for so many samples, and where each tensor's bytes start."""
    tensors: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        name: (array.dtype, (len(array), samples, array.shape[-1])) for name, array in arrays.items()
    }
    if labelled:
        tensors["labels"] = (torch.int64, (samples,))
    return layout(tensors, {"format": "pt"})


def _runs(positions: Tensor) -> Iterator[tuple[int, int, int]]:
    """Ranges of the batch whose samples are neighbours in the set: first row, number of rows, first position."""
    breaks = (positions[1:] - positions[:-1] != 1).nonzero().flatten() + 1
    firsts = [0, *breaks.tolist()]
    for first, end in zip(firsts, [*firsts[1:], len(positions)], strict=True):
        yield first, end - first, int(positions[first])
