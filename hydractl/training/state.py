"""The state of a run on disk: enough to go on as if it had never stopped, written whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hydractl.checkpoint.output import write_atomically, writing
from hydractl.errors import CheckpointError
from hydractl.training.conditions import refuse_other

NAME = re.compile(r"state-(\d{8})\.pt")


def save_state(folder: Path, step: int, state: Mapping[str, Any], keep: int) -> None:
    """Writes the state after so many steps and removes all but the last `keep`.

    Raises:
        OutputError: the disk refuses it; older states stay.
    """
    with write_atomically(folder / f"state-{step:08}.pt", force=True) as file:
        torch.save(dict(state), file)
    with writing(folder):
        for path in saved_states(folder)[:-keep]:
            path.unlink()


def saved_states(folder: Path) -> list[Path]:
    """The states of a run, oldest first."""
    return sorted(path for path in folder.glob("state-*.pt") if NAME.fullmatch(path.name))


def load_state(folder: Path, run: Mapping[str, Any]) -> dict[str, Any] | None:
    """The latest state of a run, or None where it has not saved one yet.

    Args:
        run: what determines the run's result; a state of another run is not gone on with.

    Raises:
        CheckpointError: the file is damaged.
        OptionError: the state belongs to other options or data, the first that differs is named.
    """
    paths = saved_states(folder)
    if not paths:
        return None
    try:
        # weights_only: a state is numbers and names, and nothing that could run when it is read.
        state: dict[str, Any] = torch.load(paths[-1], map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises whatever it likes on a damaged file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"{paths[-1]}: cannot be read ({reason}): remove it to go on from the one before"
        ) from error
    if not isinstance(state, dict) or not isinstance(state.get("run"), dict):
        raise CheckpointError(f"{paths[-1]}: is no state of a run: remove it to go on from the one before")
    refuse_other(paths[-1], state["run"], run)
    return state
