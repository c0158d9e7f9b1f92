"""Saves a system's answers on their way through, in the layout that `SavedPredictions` reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from hydractl.artifacts import json_text
from hydractl.checkpoint.output import make_folder, refuse_other, write_atomically, write_bytes
from hydractl.checkpoint.tensors import layout, tensor_bytes
from hydractl.errors import DataError, OutputError
from hydractl.evaluation.results import Description, plain
from hydractl.evaluation.saved_file import read_metadata
from hydractl.evaluation.saved_predictions import ABOUT, CLASSIFIER, FORMAT, VERSION, SavedPredictions
from hydractl.evaluation.sets import SetKey
from hydractl.evaluation.systems import AnsweredBatch, Predictor
from hydractl.schema import Origin, parse_json, read_json

CONDITIONS = "conditions"  # the key in a file's header
REMEDY = "name another folder, or leave out `resume`"


@dataclass(frozen=True, eq=False)
class SavedAnswers:
    """Answers of a predictor, saved on their way through, and read instead of computed where they are saved already.

    Attributes:
        about: the content of predictions.json, see `about_json`.
        conditions: what determines the answers of a set, as plain JSON, which its file holds too.
        features: whether they are saved too.
        resume: whether what is there already counts.
    """

    predictor: Predictor
    folder: Path
    about: Mapping[str, Any]
    conditions: Callable[[SetKey], Mapping[str, Any]]
    features: bool
    resume: bool
    force: bool

    def __call__(self, key: SetKey, features: bool = False) -> Iterator[AnsweredBatch]:
        path = self.folder / f"{key.path}.safetensors"
        if self.resume and path.exists():
            yield from self._saved(key, path, features)
            return
        header = {CONDITIONS: json.dumps(self.conditions(key))}
        answers = self.predictor.answers(key, features)
        with saving(path, self.predictor.samples(key), answers, force=self.force, header=header) as batches:
            yield from batches

    def start(self) -> None:
        """Writes predictions.json, and the classifier where features are saved.

        Raises:
            OutputError: the folder holds predictions already and they are not to be replaced, or not of this system.
        """
        about, text = self.folder / ABOUT, json_text(self.about, self.folder)
        if self.resume and about.exists():
            found = read_json(about, Origin(str(about), DataError, REMEDY)).fields
            refuse_other(Origin(str(about), OutputError, REMEDY), found, json.loads(text))
        else:
            write_bytes(about, f"{text}\n".encode(), self.force)
        classifier = self.predictor.classifier if self.features else None
        path = self.folder / f"{CLASSIFIER}.safetensors"
        # It follows from the networks, which are those of predictions.json.
        if classifier is not None and not (self.resume and path.exists()):
            write_bytes(path, save(classifier._asdict(), {"format": "pt"}), self.force)

    def _saved(self, key: SetKey, path: Path, features: bool) -> Iterator[AnsweredBatch]:
        conditions = read_metadata(path).get(CONDITIONS, "{}")
        found = parse_json(conditions, Origin(str(path), DataError, REMEDY)).fields
        refuse_other(Origin(str(path), OutputError, REMEDY), found, self.conditions(key))
        yield from SavedPredictions(self.folder, {key: path}).answers(key, features)


def about_json(id_name: str, predictor: Predictor, made_of: Description) -> dict[str, Any]:
    """Returns the content of predictions.json.

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
    path: Path, samples: int, batches: Iterator[AnsweredBatch], force: bool, header: Mapping[str, str] | None = None
) -> Iterator[Iterator[AnsweredBatch]]:
    """Yields the same batches, each written to the file on its way through; the file appears when the block ends well.

    Args:
        path: FOLDER/SET.safetensors.
        samples: N, of all batches together.
        header: metadata of the file.

    Raises:
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    make_folder(path.parent, parents=True)
    with write_atomically(path, force) as file:
        yield _written(file, samples, batches, {"format": "pt", **(header or {})})


def _written(
    file: Any, samples: int, batches: Iterator[AnsweredBatch], metadata: dict[str, str]
) -> Iterator[AnsweredBatch]:
    starts: dict[str, int] = {}
    for batch in batches:
        arrays = _known({"logits": batch.logits(), "features": batch.features})  # [M,B,width]
        single = _known({"labels": batch.labels, "confidence": batch.confidence})  # [B]
        if not starts:
            tensors = {name: (rows.dtype, (len(rows), samples, rows.shape[-1])) for name, rows in arrays.items()}
            header, starts = layout(
                {**tensors, **{name: (values.dtype, (samples,)) for name, values in single.items()}}, metadata
            )
            file.write(header)
        placed = arrays | {name: values[None] for name, values in single.items()}
        # Texts come in order of length: every sample has its own place in the file.
        for first, count, position in _runs(batch.positions):
            for name, rows in placed.items():
                size = rows[0, 0].nbytes
                for row, values in enumerate(rows):
                    file.seek(starts[name] + (row * samples + position) * size)
                    file.write(tensor_bytes(values[first : first + count]))
        yield batch


def _known(tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _runs(positions: Tensor) -> Iterator[tuple[int, int, int]]:
    """Yields first row, number of rows and first position of each range of samples that are neighbours in the set."""
    breaks = (positions[1:] - positions[:-1] != 1).nonzero().flatten() + 1
    firsts = [0, *breaks.tolist()]
    for first, end in zip(firsts, [*firsts[1:], len(positions)], strict=True):
        yield first, end - first, int(positions[first])
