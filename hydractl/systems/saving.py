"""Saves a system's answers in the layout that `SavedPredictions` reads."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from hydractl.artifacts import json_text
from hydractl.checkpoint.output import make_folder, refuse_existing, refuse_other, write_bytes
from hydractl.checkpoint.tensors import in_memory, write_safetensors
from hydractl.errors import DataError, OutputError
from hydractl.model.ood_head import OodHead
from hydractl.ood.score import QUANTILES, Reads
from hydractl.schema import Origin, parse_json, read_json
from hydractl.systems.description import Description, plain
from hydractl.systems.saved import ABOUT, CLASSIFIER, FORMAT, OWN_SCORE, VERSION
from hydractl.systems.saved_file import HIDDEN, read_answers
from hydractl.systems.system import EvaluationData, OnBatch, SetKey, System
from hydractl.tasks.task import Answers

CONDITIONS = "conditions"  # the key in a file's header
REMEDY = "name another folder, or leave out `resume`"


@dataclass(frozen=True, eq=False)
class SavedAnswers:
    """Answers of a predictor that are saved, and read instead of computed where they are saved already."""

    predictor: System
    folder: Path
    about: Mapping[str, Any]  # the content of predictions.json, see `about_json`
    head: OodHead | None  # the OOD score of the system's own that the predictions keep, if it is scored by one
    # The conditions of a set's answers, also stored in its file.
    conditions: Callable[[SetKey], Mapping[str, Any]]
    resume: bool  # whether what is there already counts
    force: bool

    def __call__(self, key: SetKey, reads: Reads, on_batch: OnBatch) -> Answers:
        path, conditions = self.folder / f"{key.path}.safetensors", self.conditions(key)
        if self.resume and path.exists():
            with safe_open(path, framework="numpy") as file:
                saved = parse_json((file.metadata() or {}).get(CONDITIONS, "{}"), Origin(str(path), DataError, REMEDY))
            refuse_other(Origin(str(path), OutputError, REMEDY), saved.fields, conditions)
            answers = read_answers(path, key, reads)
            on_batch(len(answers))
            return answers
        make_folder(path.parent, parents=True)
        refuse_existing(path, self.force)
        answers = self.predictor.answers(key, reads, on_batch)
        classifier = self.predictor.classifier if reads != "logits" and key.role == "id" else None
        if classifier is not None:
            self._write(CLASSIFIER, classifier._asdict())
        write_answers(path, answers, {"format": "pt", CONDITIONS: json.dumps(conditions)}, self.force)
        return answers

    def start(self) -> None:
        """Writes predictions.json, and the numbers of the system's own OOD score.

        Raises:
            OutputError: the folder holds predictions already and they are not to be replaced, or not of this system.
        """
        about, text = self.folder / ABOUT, json_text(self.about, self.folder)
        if self.resume and about.exists():
            saved = read_json(about, Origin(str(about), DataError, REMEDY)).fields
            refuse_other(Origin(str(about), OutputError, REMEDY), saved, json.loads(text))
        else:
            write_bytes(about, f"{text}\n".encode(), self.force)
        if self.head is not None:
            # A score of every layer is saved with the answers: of its numbers, only the quantiles are needed again.
            complete, kept = self.head.row.reads != "layers", dict(self.head.named_buffers())
            self._write(OWN_SCORE, {name: kept[name].cpu().float() for name in (kept if complete else (QUANTILES,))})

    def _write(self, stem: str, tensors: Mapping[str, Tensor]) -> None:
        content = save(dict(tensors), {"format": "pt"})
        write_bytes(self.folder / f"{stem}.safetensors", content, self.force or self.resume)


def about_json(id_name: str, predictor: System, made_of: Description, head: OodHead | None) -> dict[str, Any]:
    """Returns the content of predictions.json.

    Args:
        id_name: the name of the in-distribution set in reports.
        head: the OOD score of its own that it is scored by, if any.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "id_name": id_name,
        "labels": None if predictor.labels is None else list(predictor.labels),
        "temperature": predictor.calibration.divisor,
        "cost": plain(predictor.cost),
        "networks": plain(made_of.networks),
        **({"leaks": plain(made_of.leaks)} if made_of.leaks else {}),
        **({"ood": plain(head.fit)} if head is not None else {}),
    }


def write_answers(path: Path, answers: Answers, metadata: dict[str, str], force: bool = False) -> None:
    """Writes the answers to one set as FOLDER/SET.safetensors."""
    arrays = {
        "logits": answers.member_logits,
        "features": answers.features,
        "labels": answers.truth,
        "confidence": answers.confidence,
        "ood_score": answers.ood_score,
        "places": answers.places,
        **{f"{HIDDEN}{number}": layer for number, layer in enumerate(answers.hidden)},
    }
    tensors = {name: in_memory(torch.from_numpy(array)) for name, array in arrays.items() if array is not None}
    write_safetensors(path, tensors, metadata, force)


def answer_conditions(
    made_of: Mapping[str, Any], data: EvaluationData, labels: Sequence[str] | None, key: SetKey
) -> dict[str, Any]:
    """Returns everything that determines a system's answers on a set, as plain JSON."""
    samples = data.sets[key]
    labelling = {"match_labels": data.match, "labels": samples.label_names} if key.has_labels else {}
    return {**made_of, "classes": labels, "data": samples.identity(), **labelling}
