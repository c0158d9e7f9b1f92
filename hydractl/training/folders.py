"""The folder of a run, beside the file that it makes: its log, its learning curve, and its states while it lasts."""

from __future__ import annotations

import shutil
from pathlib import Path

from hydractl.checkpoint.atomic import refuse_existing
from hydractl.errors import OutputError
from hydractl.training.state import saved_states


def run_folder(output: Path) -> Path:
    """The folder of the run that makes `output`."""
    return output.with_name(f"{output.name}.training")


def is_done(output: Path, resume: bool, force: bool) -> bool:
    """Whether there is nothing left to do, because a run that is to be resumed has already finished.

    Raises:
        OutputError: the output, or an unfinished run for it, exists, and neither `resume` nor `force` is set.
    """
    unfinished = _states(run_folder(output))
    if resume:
        return output.is_file() and not unfinished
    refuse_existing(output, force)
    if unfinished and not force:
        raise OutputError(f"{run_folder(output)}: an unfinished run lies there: go on with `resume`, or pass `force`")
    return False


def prepare_folder(folder: Path, resume: bool) -> None:
    """Makes a run's folder, without the remains of an earlier run unless that is resumed."""
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)


def clear_states(folder: Path) -> None:
    """Removes what a finished run kept to go on from; its log and its curve stay."""
    for path in _states(folder):
        path.unlink()


def _states(folder: Path) -> list[Path]:
    return [path for place in (folder, *folder.glob("lr-*")) for path in saved_states(place)]
