"""One file of saved predictions: a system's answers to a data set."""

import zlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from hydractl.errors import DataError
from hydractl.metrics.arrays import Logits, check_labels, check_member_logits, check_scores
from hydractl.ood.score import Beside
from hydractl.systems.system import SetKey
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers, Task

ENDINGS = (".safetensors", ".npz")
NAMES = ("logits", "probabilities", "confidence", "ood_score", "places")
HIDDEN, MOST_LAYERS = "hidden.", 1000  # of the arrays of hidden layers: the name before the number
TOLERANCE = 1e-3  # in a sum of probabilities; float32 is a thousand times more exact
SMALLEST = np.finfo(np.float32).tiny  # stands for a probability of zero, whose logarithm is not finite

#: What saved predictions answer.
SAVED = find_task("image-classification")

Arrays = Mapping[str, NDArray[Any]]


def read_arrays(path: Path, names: Collection[str]) -> Arrays:
    """Returns the arrays of a file that have one of the names."""
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in names if name in file}
        else:
            with safe_open(path, framework="numpy") as file:
                arrays = {name: file.get_tensor(name) for name in names if name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, LookupError, BadZipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as predictions: {str(error).splitlines()[0]}") from error
    return {name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in arrays.items()}


def read_answers(path: Path, key: SetKey, reads: Beside = "logits", task: Task = SAVED) -> Answers:
    """Returns the answers of a task that a file holds for a data set; without labels those of sets that need none.

    Raises:
        DataError: it is damaged, or its arrays make no sense or lack features or hidden states that are wanted.
    """
    names = [*NAMES, *(["labels", "correct"] if key.has_labels else []), *(["features"] if reads != "logits" else [])]
    names += [f"{HIDDEN}{number}" for number in range(MOST_LAYERS)] if reads == "layers" else []
    arrays = read_arrays(path, names)
    try:
        answers = _answers(arrays, task)
        if reads != "logits":
            answers = replace(answers, features=_features(arrays, answers))
        return replace(answers, hidden=_hidden(arrays, answers)) if reads == "layers" else answers
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _answers(arrays: Arrays, task: Task) -> Answers:
    logits, labels, correct = _logits(arrays, 2 if task is SAVED else 1), arrays.get("labels"), arrays.get("correct")
    confidence = arrays.get("confidence")
    if confidence is not None:
        _require_floats("confidence", confidence)
        confidence = check_scores(confidence, "confidence")
    if logits is None:
        if confidence is None:
            raise DataError("holds no logits, probabilities or confidence: add an array of one of these names")
        if correct is not None and (correct.shape != confidence.shape or not np.isin(correct, (0, 1)).all()):
            raise DataError(f"correct of shape {correct.shape}: expected {len(confidence)} of true and false")
        right = None if correct is None else correct.astype(bool)
        return Answers(task=task, member_logits=None, confidence=confidence, correct=right)
    if correct is not None:
        raise DataError("holds correct beside logits, which say what is right: leave correct out")
    if confidence is not None and len(confidence) != logits.shape[1]:
        raise DataError(f"confidence of {len(confidence)} samples, logits of {logits.shape[1]}: expected the same")
    sets = labels is not None and labels.ndim == 2 and task is not SAVED
    truth = labels if labels is None or sets else check_labels(logits, labels)
    answers = Answers(task=task, member_logits=logits, truth=truth, confidence=confidence, places=arrays.get("places"))
    odd = arrays.get("ood_score")
    if odd is not None and len(odd := check_scores(odd, "ood_score")) != len(answers):
        raise DataError(f"ood_score of {len(odd)} samples, logits of {len(answers)}: expected the same")
    return replace(answers, ood_score=odd)


def _logits(arrays: Arrays, least: int) -> Logits | None:
    """Returns the logits `[M,N,C]`, or the logarithms of the probabilities; C is `least` or more."""
    if "probabilities" in arrays and "logits" in arrays:
        raise DataError("holds logits and probabilities: leave one of them out")
    values = arrays.get("logits", arrays.get("probabilities"))
    if values is None:
        return None
    members = values[None] if values.ndim == 2 else values
    check_member_logits(members, least)
    if "logits" in arrays:
        _require(np.isfinite(members).all(-1), "a number is NaN or infinite: expected finite numbers")
        return members
    _require((members >= 0).all(-1), "a probability is negative or NaN: are these logits?")
    _require(np.abs(members.sum(-1) - 1) <= TOLERANCE, "the probabilities do not sum to 1: are these logits?")
    return np.log(np.maximum(members, SMALLEST))


def _features(arrays: Arrays, answers: Answers) -> Logits:
    if "features" not in arrays:
        raise DataError(
            "holds no features: save the predictions again by an evaluation with this OOD score, add features, or "
            "choose a score that reads logits"
        )
    _require_floats("features", arrays["features"])
    features = arrays["features"]
    members = features[None] if features.ndim == 2 else features
    logits = answers.member_logits
    if logits is None or members.shape[:2] != (len(logits), len(answers)):
        beside = "no logits" if logits is None else f"logits of shape {logits.shape}"
        raise DataError(f"features of shape {members.shape} and {beside}: expected the same members and samples")
    _require(np.isfinite(members).all(-1), "a number is NaN or infinite: expected finite numbers")
    return members


def _hidden(arrays: Arrays, answers: Answers) -> list[Logits]:
    logits = answers.member_logits
    layers = [arrays[name] for number in range(MOST_LAYERS) if (name := f"{HIDDEN}{number}") in arrays]
    for layer in layers:
        _require_floats("hidden states", layer)
        shape = (len(answers),) if layer.ndim == 3 else ()
        if logits is None or len(layer) not in (1, len(logits)) or layer.shape[1:2] != shape:
            raise DataError(f"hidden states of shape {layer.shape}: expected [1 or members, samples, width]")
        _require(np.isfinite(layer).all(-1), "a number is NaN or infinite: expected finite numbers")
    return layers


def _require_floats(name: str, array: NDArray[Any]) -> None:
    if array.dtype not in (np.float32, np.float64):
        raise DataError(
            f"{name} have type {array.dtype}: expected float32 or float64, half precision blurs every metric"
        )


def _require(good: NDArray[np.bool_] | np.bool_, problem: str) -> None:
    """Raises DataError with the first sample that is not good, `[M,N]`."""
    if not good.all():
        member, sample = np.argwhere(~np.asarray(good))[0]
        raise DataError(f"sample {sample} of member {member}: {problem}")
