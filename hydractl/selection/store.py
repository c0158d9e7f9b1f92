"""Logits on disk, batch by batch, for a selection that was interrupted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.folders import is_ours, write_folder
from hydractl.checkpoint.output import difference, goes_on, part_of, write_bytes, writing
from hydractl.errors import ArtifactError, OutputError
from hydractl.schema import Origin, read_json

KIND = "selection-state"
CONDITIONS = "conditions.json"


class Store:
    """A folder with a file for each batch that has been answered, and what its logits depend on."""

    def __init__(self, folder: Path, conditions: Mapping[str, Any], resume: bool, force: bool) -> None:
        """
        Args:
            conditions: all that determines the logits, as plain JSON.
            resume: go on with what lies in the folder.
            force: remove what lies there, if it is ours.

        Raises:
            OutputError: the folder is not ours, or holds an interrupted run and neither `resume` nor `force` is set.
            ArtifactError: the run that is to be resumed had other conditions; the first difference is named.
        """
        self.folder = folder
        wanted = json.loads(json.dumps(conditions))
        if folder.exists():
            self._require_ours()
            if goes_on(folder, resume, force):
                self._compare(wanted)
                return
            self.remove()
        # Whole or not at all: whoever is killed here has left nothing that stands in the way of the next.
        with write_folder(folder, KIND) as new:
            write_bytes(new / CONDITIONS, json.dumps(wanted).encode())

    def read(self, name: str, number: int) -> NDArray[np.floating] | None:
        """The logits of a batch of a set, or None where it has not been answered."""
        path = self._path(name, number)
        if not path.is_file():
            return None
        try:
            logits: NDArray[np.floating] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ArtifactError(f"{path}: is damaged: remove it and go on") from error
        return logits

    def write(self, name: str, number: int, logits: NDArray[np.floating]) -> None:
        """Keeps the logits of a batch."""
        out = BytesIO()
        np.save(out, logits, allow_pickle=False)
        write_bytes(self._path(name, number), out.getvalue(), force=True)

    def remove(self) -> None:
        """Removes the folder, once the selection is written or given up."""
        self._require_ours()
        # Under another name first: half a folder could not be told from somebody else's.
        gone = part_of(self.folder)
        with writing(self.folder):
            self.folder.rename(gone)
            shutil.rmtree(gone)

    def _path(self, name: str, number: int) -> Path:
        # Names of sets are the user's: files are told apart by the bytes of theirs.
        return self.folder / f"{name.encode().hex() or 'id'}-{number:06}.npy"

    def _require_ours(self) -> None:
        if not is_ours(self.folder, KIND):
            raise OutputError(f"{self.folder}: was not made by hydractl: move it, or name another output")

    def _compare(self, wanted: Mapping[str, Any]) -> None:
        remedy = "give what it was started with, or start over with `force`"
        origin = Origin(str(self.folder), ArtifactError, remedy)
        found = read_json(self.folder / CONDITIONS, replace(origin, name=str(self.folder / CONDITIONS))).fields
        if other := difference(found, wanted):
            raise origin.refusal(f"is of a selection with {other}")
