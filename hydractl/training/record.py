"""The folder of a run, FILE.training beside its file: log, learning curve, and states while the run lasts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hydractl.checkpoint.folders import is_ours, mark
from hydractl.checkpoint.output import (
    PART,
    append_bytes,
    goes_on,
    refuse_existing,
    write_atomically,
    write_bytes,
    writing,
)
from hydractl.errors import CheckpointError, OutputError
from hydractl.style import COLORS, SMALL, styled, whole_numbers
from hydractl.training.conditions import Conditions, refuse_other

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = "training"
LOG, CURVE, LAST_GOOD = "log.jsonl", "curve.png", "last-good.safetensors"
STATE = re.compile(r"state-\d{8}\.pt")
#: The panels of a learning curve: a key of the log's entries, and its title.
CURVES = {
    "loss": "training loss (nats)",
    "nll": "validation NLL (nats)",
    "accuracy": "validation accuracy",
    "lr": "learning rate",
}


def run_folder(output: Path) -> Path:
    """Returns the folder of the run that makes `output`."""
    return output.with_name(f"{output.name}.training")


def is_done(output: Path, resume: bool, force: bool) -> bool:
    """Returns whether a run to resume has finished already.

    Raises:
        OutputError: the output or an unfinished run for it exists, and neither `resume` nor `force` is set; or the
            run's folder is the user's own.
    """
    folder = run_folder(output)
    _refuse_foreign(folder)
    states = list(_all_states(folder))
    if resume:
        return output.is_file() and not states
    refuse_existing(output, force)
    if states:
        goes_on(folder, resume, force)
    return False


def _refuse_foreign(folder: Path) -> None:
    """Raises OutputError if a run's folder would replace something of the user's."""
    remedy = "a run keeps its log there: move it, or name another output"
    if folder.is_symlink() or (os.path.lexists(folder) and not folder.is_dir()):
        raise OutputError(f"{folder}: is not a folder: {remedy}")
    files = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if files and not is_ours(folder, KIND):
        raise OutputError(f"{folder}: holds {files[0]}, which hydractl did not write: {remedy}")


def prepare_folder(folder: Path, resume: bool) -> None:
    """Makes a run's folder; removes what an earlier run left, unless that is resumed.

    Raises:
        OutputError: the disk refuses it.
    """
    with writing(folder):
        folder.mkdir(exist_ok=True)
        for place in _places(folder):
            for part in place.glob(f".*{PART}"):  # left by a killed run: this one has claimed the output
                part.unlink()
            for path in () if resume else (*saved_states(place), place / LOG, place / CURVE, place / LAST_GOOD):
                path.unlink(missing_ok=True)
            if place != folder and not any(place.iterdir()):
                place.rmdir()
    mark(folder, KIND, [])


def clear_states(folder: Path) -> None:
    """Removes the states of a finished run; its log and its curve stay."""
    with writing(folder):
        for path in _all_states(folder):
            path.unlink()


def _places(folder: Path) -> list[Path]:
    """Returns the folder of a run, and those of its rates."""
    return [folder, *sorted(place for place in folder.glob("lr-*") if place.is_dir())]


def _all_states(folder: Path) -> Iterator[Path]:
    for place in _places(folder):
        yield from saved_states(place)


def save_state(folder: Path, step: int, state: Mapping[str, Any], keep: int) -> None:
    """Writes the state after a number of steps and removes all but the last `keep`.

    Raises:
        OutputError: the disk refuses it; older states stay.
    """
    with write_atomically(folder / f"state-{step:08}.pt", force=True) as file:
        torch.save(dict(state), file)
    with writing(folder):
        for path in saved_states(folder)[:-keep]:
            path.unlink()


def saved_states(folder: Path) -> list[Path]:
    """Returns the states of a run, oldest first."""
    return sorted(path for path in folder.glob("state-*.pt") if STATE.fullmatch(path.name))


def load_state(folder: Path, conditions: Conditions) -> dict[str, Any] | None:
    """Reads the latest state of a run; None if it has not saved one yet.

    Raises:
        CheckpointError: the file is damaged.
        OptionError: the run had other conditions; the first difference is named.
    """
    paths = saved_states(folder)
    if not paths:
        return None
    try:
        # weights_only: a state holds numbers and names, and nothing that could run when it is read.
        state: dict[str, Any] = torch.load(paths[-1], map_location="cpu", weights_only=True, mmap=True)
        found = dict(state["run"])
    except Exception as error:  # torch raises errors of any class on a damaged file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"{paths[-1]}: cannot be read ({reason}): remove it to go on from the one before"
        ) from error
    refuse_other(paths[-1], found, conditions)
    return state


def refuse_other_run(folder: Path, conditions: Conditions) -> None:
    """Raises OptionError or CheckpointError if a run's states, of any rate, are of another run or damaged."""
    for place in _places(folder):
        load_state(place, conditions)


def start_log(folder: Path, step: int) -> None:
    """Starts the log of a run, or drops the lines beyond the step that it resumes from."""
    kept = [entry for entry in read_log(folder) if entry["step"] <= step] if step else []
    write_bytes(folder / LOG, "".join(map(_line, kept)).encode(), force=True)


def write_log(folder: Path, entry: Mapping[str, Any]) -> None:
    """Adds one line to the log."""
    append_bytes(folder / LOG, _line(entry).encode())


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Returns the entries of a run's log up to a line that a crash cut short."""
    entries = []
    path = folder / LOG
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            entries.append(json.loads(line))
        except ValueError:
            break
    return entries


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry) + "\n"


def plot_curve(entries: list[dict[str, Any]], path: Path) -> bool:
    """Draws the entries' `CURVES` over the steps; returns False if matplotlib is not installed."""
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError:
        return False
    figure = _curve(entries)
    with write_atomically(path, force=True) as file:
        figure.savefig(file, format="png", dpi=150)
    return True


@styled
def _curve(entries: list[dict[str, Any]]) -> Figure:
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
