"""The folder of a run, beside the file that it makes: its log, its learning curve, and its states while it lasts."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from hydractl.checkpoint.folders import MARK, is_ours, mark
from hydractl.checkpoint.output import PART, goes_on, refuse_existing, remove_abandoned, writing
from hydractl.errors import OutputError
from hydractl.training.conditions import Conditions
from hydractl.training.state import load_state, saved_states

KIND = "training"
#: Every file that a run puts there; of several rates each has a folder of its own within.
OURS = re.compile(
    rf"{re.escape(MARK)}|(lr-[^/]+/)?(log\.jsonl|curve\.png|last-good\.safetensors|state-\d{{8}}\.pt|\..+\.part)"
)


def run_folder(output: Path) -> Path:
    """The folder of the run that makes `output`."""
    return output.with_name(f"{output.name}.training")


def is_done(output: Path, resume: bool, force: bool) -> bool:
    """Whether there is nothing left to do, because a run that is to be resumed has already finished.

    Raises:
        OutputError: the output, or an unfinished run for it, exists, and neither `resume` nor `force` is set; or the
            run's folder holds what no run put there.
    """
    folder = run_folder(output)
    _refuse_foreign(folder)
    states = _states(folder)
    if resume:
        return output.is_file() and not states
    refuse_existing(output, force)
    if states:
        goes_on(folder, resume, force)
    return False


def prepare_folder(folder: Path, resume: bool) -> None:
    """Makes a run's folder, without the remains of an earlier run unless that is resumed.

    Raises:
        OutputError: the disk refuses it.
    """
    with writing(folder):
        if folder.is_dir() and not resume:
            shutil.rmtree(folder)
        folder.mkdir(exist_ok=True)
    for place in _places(folder):
        remove_abandoned(place.glob(f".*{PART}"))
    mark(folder, KIND, [])


def refuse_other_run(folder: Path, conditions: Conditions) -> None:
    """Nothing, if the states in a run's folder, of whichever rate, are of a run under these conditions.

    Raises:
        CheckpointError: a state is damaged.
        OptionError: they are of another run; the first difference is named.
    """
    for place in _places(folder):
        load_state(place, conditions)


def clear_states(folder: Path) -> None:
    """Removes what a finished run kept to go on from; its log and its curve stay."""
    with writing(folder):
        for path in _states(folder):
            path.unlink()


def _refuse_foreign(folder: Path) -> None:
    """Raises OutputError where a run's folder would take the place of something that is the user's."""
    if not os.path.lexists(folder):
        return
    remedy = "a run keeps its log there: move it, or name another output"
    if folder.is_symlink() or not folder.is_dir():
        raise OutputError(f"{folder}: is no folder: {remedy}")
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
    foreign = [name for name in files if not OURS.fullmatch(name)]
    if foreign or (files and not is_ours(folder, KIND)):
        raise OutputError(f"{folder}: holds {(foreign or files)[0]}, which hydractl did not write: {remedy}")


def _places(folder: Path) -> list[Path]:
    return [folder, *sorted(folder.glob("lr-*"))]


def _states(folder: Path) -> list[Path]:
    return [path for place in _places(folder) for path in saved_states(place)]
