"""The folder beside an output in which a run keeps what an interruption must not lose."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydractl.checkpoint.folders import is_ours, write_folder
from hydractl.checkpoint.output import goes_on, part_of, refuse_other, write_bytes, writing
from hydractl.errors import ArtifactError, OutputError
from hydractl.schema import Origin, read_json

CONDITIONS = "conditions.json"


class StateFolder:
    """The finished part of a run, in files beside its output, and the conditions it was computed under."""

    kind = "state"  # tells it from other folders of ours

    def __init__(self, folder: Path, conditions: Mapping[str, Any], resume: bool, force: bool) -> None:
        """
        Args:
            conditions: all that determines what is computed, as plain JSON.
            resume: continue from what lies in the folder.
            force: remove what lies there, if it is ours.

        Raises:
            OutputError: the folder is not ours, or holds an interrupted run and neither `resume` nor `force` is set.
            ArtifactError: the run to resume had other conditions; the first difference is named.
        """
        self.folder = folder
        if goes_on(folder, resume, force):
            origin = Origin(str(folder), ArtifactError, "give what it was started with, or start over with `force`")
            refuse_other(origin, read_json(folder / CONDITIONS, origin).fields, conditions)
            return
        if folder.exists():
            self.remove()
        # Whole or not at all: a run that is killed here leaves nothing in the way of the next.
        with write_folder(folder, self.kind) as new:
            write_bytes(new / CONDITIONS, json.dumps(conditions).encode())

    def remove(self) -> None:
        """Removes the folder, once the output is written or given up."""
        if not is_ours(self.folder, self.kind):
            raise OutputError(f"{self.folder}: was not made by hydractl: move it, or name another output")
        # Renamed first: half a folder would not be recognised as ours.
        gone = part_of(self.folder)
        with writing(self.folder):
            self.folder.rename(gone)
            shutil.rmtree(gone)
