"""The conditions that determine the result of fine-tuning, and the folder of a run, FILE.training beside its file.

A run resumes only under the same conditions. Its folder holds log, learning curve, and a state while the run lasts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hydractl.checkpoint import output
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.manifest import fingerprint
from hydractl.checkpoint.output import (
    append_bytes,
    goes_on,
    is_ours,
    refuse_existing,
    write_atomically,
    write_bytes,
    write_folder,
    writing,
)
from hydractl.drawing import COLORS, SMALL, styled, whole_numbers
from hydractl.errors import CheckpointError, OptionError, OutputError
from hydractl.schema import Origin
from hydractl.training.losses import Teachers
from hydractl.training.network import step_count
from hydractl.training.recipe import Recipe, recipe_json
from hydractl.training.request import Seeds
from hydractl.training.trainset import Match, TrainingData, digest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Conditions = Mapping[str, Any]
REMEDY = "`resume` with the same options and data, or start over without `resume`"
#: Conditions that provenance holds in the same words.
WORDED = ("steps", "seed", "order_seed", "noise_seed", "match_labels", "precision")
INPUTS = ("model", "training data", "validation data", "outliers", "teacher")
KIND = "training"
LOG, CURVE, STATE = "log.jsonl", "curve.png", "state.pt"
#: The panels of a learning curve: a key of the log's entries, and its title.
CURVES = {
    "loss": "training loss",
    "mse": "validation MSE",
    "nll": "validation NLL (nats)",
    "accuracy": "validation accuracy",
    "lr": "learning rate",
}


@dataclass(frozen=True, eq=False)
class Training:
    """A recipe, data and seeds; with the network and a precision they determine the result."""

    # With labels by the model's names, or by index as `match` says; any labels if the recipe asks for a new classifier.
    data: TrainingData
    recipe: Recipe = Recipe()
    seeds: Seeds = Seeds()
    match: Match = "name"
    # Whose probabilities the network learns; if they have all the weight, labels are not read.
    teachers: Teachers | None = None

    def __post_init__(self) -> None:
        step_count(self.recipe, len(self.data.train))
        if len(self.recipe.lr) > 1 and self.data.validation is None:
            raise OptionError(
                f"{len(self.recipe.lr)} learning rates to choose from, but no validation data: "
                "pass `val_data` or `val_split`, or one rate (`settings` lr=...)"
            )

    @property
    def steps(self) -> int:
        """The number of optimiser steps."""
        return step_count(self.recipe, len(self.data.train))


def training_conditions(checkpoint: Checkpoint, training: Training, precision: str) -> Conditions:
    """Returns all that determines the result, in plain JSON.

    Args:
        checkpoint, training: as they are given, before labels and a classifier are made to fit.
    """
    data, seeds = training.data, training.seeds
    teachers = () if training.teachers is None else training.teachers.checkpoints
    return {
        # Without the words that say where its numbers come from.
        **{name: value for name, value in recipe_json(training.recipe).items() if name != "source"},
        "steps": training.steps,
        "seed": seeds.seed,
        "order_seed": seeds.order,
        "noise_seed": seeds.noise,
        "match_labels": training.match,
        "precision": precision,
        "model": fingerprint(checkpoint),
        "training data": digest(data.train),
        "validation data": None if data.validation is None else digest(data.validation),
        "outliers": None if data.outliers is None else digest(data.outliers),
        "teacher": [fingerprint(teacher) for teacher in teachers] or None,
    }


def as_provenance(conditions: Conditions, recipe: Recipe, lr: float) -> dict[str, Any]:
    """Returns the conditions as a file's provenance has them.

    Args:
        lr: the one of the recipe's rates whose weights the file holds.
    """
    return {
        "recipe": {**recipe_json(recipe), "lr": lr},
        "rates": list(recipe.lr),
        **{name: conditions[name] for name in WORDED},
        "fingerprints": {name: conditions[name] for name in INPUTS},
    }


def refuse_other_conditions(place: Path, recorded: Conditions, expected: Conditions) -> None:
    """Raises OptionError if a file was made under other conditions than this run's; names the first difference."""
    output.refuse_other(
        Origin(str(place), OptionError, REMEDY), {name: recorded.get(name) for name in expected}, expected
    )


def run_folder(output: Path) -> Path:
    """Returns the folder of the run that makes `output`."""
    return output.with_name(f"{output.name}.training")


def is_done(output: Path, resume: bool, force: bool, inputs: Sequence[object]) -> bool:
    """Returns whether a run to resume has finished already.

    Raises:
        OutputError: the output or an unfinished run for it exists, and neither `resume` nor `force` is set; the
            output is one of the inputs; or the run's folder is the user's own.
    """
    folder = run_folder(output)
    if os.path.lexists(folder) and not is_ours(folder, KIND):
        raise OutputError(f"{folder}: hydractl keeps the log of a run there: move it, or name another output")
    unfinished = any(folder.rglob(STATE))
    if resume:
        refuse_existing(output, True, inputs)
        return output.is_file() and not unfinished
    refuse_existing(output, force, inputs)
    if unfinished:
        goes_on(folder, resume, force)
    return False


def prepare_folder(folder: Path, resume: bool) -> None:
    """Makes a run's folder; removes what an earlier run left, unless that is resumed."""
    if not folder.is_dir():
        with write_folder(folder, KIND):
            pass
    elif not resume:
        _remove(folder, STATE, LOG, CURVE)


def clear_states(folder: Path) -> None:
    """Removes the states of a finished run; its log and its curve stay."""
    _remove(folder, STATE)


def _remove(folder: Path, *names: str) -> None:
    """Removes files of those names: the run's, and those of its rates in folders of their own."""
    with writing(folder):
        for path in [path for name in names for path in folder.rglob(name)]:
            path.unlink()


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Writes a run's state in the place of the one before."""
    with write_atomically(folder / STATE, force=True) as file:
        torch.save(dict(state), file)


def load_state(folder: Path, conditions: Conditions) -> dict[str, Any] | None:
    """Reads the state of a run; None if it has not saved one yet.

    Raises:
        CheckpointError: the file is damaged.
        OptionError: the run had other conditions; the first difference is named.
    """
    path = folder / STATE
    if not path.exists():
        return None
    try:
        # weights_only: a state holds numbers and names, and nothing that could run when it is read.
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        recorded = dict(state["run"])
    except Exception as error:  # torch raises errors of any class on a damaged file
        raise CheckpointError(f"{path}: cannot be read: start over with `force`") from error
    refuse_other_conditions(path, recorded, conditions)
    return state


def refuse_other_run(folder: Path, conditions: Conditions) -> None:
    """Raises OptionError or CheckpointError if a run's states, of any rate, are of another run or damaged."""
    for path in folder.rglob(STATE):
        load_state(path.parent, conditions)


def start_log(folder: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Writes the log with its entries so far; lines beyond the state that a run resumes from go."""
    write_bytes(folder / LOG, "".join(map(_line, entries)).encode(), force=True)


def write_log(folder: Path, entry: Mapping[str, Any]) -> None:
    """Adds one line to the log."""
    append_bytes(folder / LOG, _line(entry).encode())


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry) + "\n"


def plot_curve(entries: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws the entries' `CURVES` over the steps, if matplotlib is installed."""
    try:
        figure = _curve(entries)
    except ImportError:
        return
    with write_atomically(path, force=True) as file:
        figure.savefig(file, format="png", dpi=150)


@styled
def _curve(entries: Sequence[Mapping[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    shown = {key: title for key, title in CURVES.items() if any(key in entry for entry in entries)}
    figure = Figure(figsize=(2 * SMALL[0], 0.4 + 1.5 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for place, (axes, (key, title)) in enumerate(zip(panels, shown.items(), strict=True)):
        points = [(entry["step"], entry[key]) for entry in entries if key in entry]
        axes.plot(*zip(*points, strict=True), color=COLORS[place], marker="o" if len(points) < 30 else "", markersize=4)
        axes.set_title(title)
    panels[-1].set_xlabel("step")
    whole_numbers(panels[-1].xaxis)
    return figure
