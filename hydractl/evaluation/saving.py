"""Saves a system's answers on their way through, in the layout that `SavedPredictions` reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from hydractl.artifacts import json_text
from hydractl.checkpoint.output import make_folder, refuse_other, write_atomically, write_bytes
from hydractl.checkpoint.tensors import layout, tensor_bytes
from hydractl.errors import DataError, OutputError
from hydractl.evaluation.results import Cost, Description, plain
from hydractl.evaluation.saved_file import read_metadata
from hydractl.evaluation.saved_predictions import ABOUT, CLASSIFIER, FORMAT, VERSION, SavedPredictions
from hydractl.evaluation.sets import SetKey
from hydractl.evaluation.systems import AnsweredBatch, Classifier, Predictor
from hydractl.schema import Origin, parse_json, read_json

CONDITIONS = "conditions"  # under which a file's header says them
REMEDY = "name another folder, or leave out `resume`"


@dataclass(frozen=True, eq=False)
class SavingPredictor:
    """A predictor whose answers are saved on their way through, and not computed again where they lie saved already.

    Attributes:
        about: what the folder says of itself, see `about_json`.
        conditions: what determines the answers of a set, as plain JSON, which its file says too.
        features: whether they are saved too.
        resume: whether what lies there already counts.
    """

    predictor: Predictor
    folder: Path
    about: Mapping[str, Any]
    conditions: Callable[[SetKey], Mapping[str, Any]]
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

    @property
    def confident(self) -> bool:
        return self.predictor.confident

    def samples(self, key: SetKey) -> int:
        return self.predictor.samples(key)

    def answers(self, key: SetKey, features: bool = False) -> Iterator[AnsweredBatch]:
        path = self.folder / f"{key.path}.safetensors"
        if self.resume and path.exists():
            yield from self._saved(key, path, features)
            return
        said = {CONDITIONS: json.dumps(self.conditions(key))}
        with saving(
            path, self.samples(key), self.predictor.answers(key, features), force=self.force, said=said
        ) as batches:
            yield from batches

    def start(self) -> None:
        """Makes the folder and says in it what computes the predictions, with the classifier where features are saved.

        Raises:
            OutputError: the folder holds predictions already and they are not to be replaced, or not of this system.
        """
        about, text = self.folder / ABOUT, json_text(self.about, self.folder)
        if self.resume and about.exists():
            found = read_json(about, Origin(str(about), DataError, REMEDY)).fields
            refuse_other(Origin(str(about), OutputError, REMEDY), found, json.loads(text))
        else:
            write_bytes(about, f"{text}\n".encode(), self.force)
        classifier = self.classifier if self.features else None
        path = self.folder / f"{CLASSIFIER}.safetensors"
        # It follows from the networks, which are the same where the folder says so.
        if classifier is not None and not (self.resume and path.exists()):
            write_bytes(path, save(classifier._asdict(), {"format": "pt"}), self.force)

    def _saved(self, key: SetKey, path: Path, features: bool) -> Iterator[AnsweredBatch]:
        said = read_metadata(path).get(CONDITIONS, "{}")
        found = parse_json(said, Origin(str(path), DataError, REMEDY)).fields
        refuse_other(Origin(str(path), OutputError, REMEDY), found, self.conditions(key))
        yield from SavedPredictions(self.folder, {key: path}).answers(key, features)


def about_json(id_name: str, predictor: Predictor, made_of: Description) -> dict[str, Any]:
    """Returns what predictions.json says of a folder.

    Args:
        id_name: the name of the in-distribution set in reports.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "id_name": id_name,
        "labels": None if predictor.labels is None else list(predictor.labels),
        "temperature": predictor.temperature,
        "cost": plain(predictor.cost),
        "networks": plain(made_of.networks),
        **({"leaks": plain(made_of.leaks)} if made_of.leaks else {}),
    }


@contextmanager
def saving(
    path: Path, samples: int, batches: Iterator[AnsweredBatch], force: bool, said: Mapping[str, str] | None = None
) -> Iterator[Iterator[AnsweredBatch]]:
    """Yields the same batches, each written to the file on its way through; the file appears when the block ends well.

    Args:
        path: FOLDER/SET.safetensors.
        samples: N, of all batches together.
        said: what the file says of itself.

    Raises:
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    make_folder(path.parent, parents=True)
    with write_atomically(path, force) as file:
        yield _written(file, samples, batches, {"format": "pt", **(said or {})})


def _written(
    file: Any, samples: int, batches: Iterator[AnsweredBatch], said: dict[str, str]
) -> Iterator[AnsweredBatch]:
    starts: dict[str, int] = {}
    for batch in batches:
        arrays = {"logits": batch.logits()}
        if batch.features is not None:
            arrays["features"] = batch.features
        single = {
            name: values
            for name, values in (("labels", batch.labels), ("confidence", batch.confidence))
            if values is not None
        }
        if not starts:
            header, starts = _layout(arrays, single, samples, said)
            file.write(header)
        # Texts come in order of length: every sample has its own place in the file.
        for first, count, position in _runs(batch.positions):
            for name, array in arrays.items():
                row = array.shape[-1] * array.element_size()
                for member, rows in enumerate(array):
                    file.seek(starts[name] + (member * samples + position) * row)
                    file.write(tensor_bytes(rows[first : first + count]))
            for name, values in single.items():
                file.seek(starts[name] + position * values.element_size())
                file.write(tensor_bytes(values[first : first + count]))
        yield batch


def _layout(
    arrays: Mapping[str, Tensor], single: Mapping[str, Tensor], samples: int, said: dict[str, str]
) -> tuple[bytes, dict[str, int]]:
    """Returns the header of a file for so many samples, and where each tensor's bytes start."""
    tensors: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        name: (array.dtype, (len(array), samples, array.shape[-1])) for name, array in arrays.items()
    }
    tensors |= {name: (values.dtype, (samples,)) for name, values in single.items()}
    return layout(tensors, said)


def _runs(positions: Tensor) -> Iterator[tuple[int, int, int]]:
    """Ranges of the batch whose samples are neighbours in the set: first row, number of rows, first position."""
    breaks = (positions[1:] - positions[:-1] != 1).nonzero().flatten() + 1
    firsts = [0, *breaks.tolist()]
    for first, end in zip(firsts, [*firsts[1:], len(positions)], strict=True):
        yield first, end - first, int(positions[first])
