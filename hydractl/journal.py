"""What a search has found so far, on disk after every step, so that a killed one goes on where it was."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from hydractl.artifacts import ArtifactFile, read_artifact
from hydractl.checkpoint.atomic import write_bytes
from hydractl.conditions import difference
from hydractl.errors import ArtifactError, OutputError
from hydractl.schema import Origin


class StateFile(ArtifactFile):
    """The form of a journal; what was found stands in fields of its own."""

    conditions: dict[str, Any]


S = TypeVar("S", bound=StateFile)
T = TypeVar("T")


@dataclass(frozen=True)
class Journal(ABC, Generic[S, T]):
    """A file that holds what a search has found, and everything that determines it as plain JSON.

    Attributes:
        FORMAT, VERSION, FILE: of the file.
    """

    path: Path
    conditions: Mapping[str, Any]

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int]
    FILE: ClassVar[type[StateFile]]

    @abstractmethod
    def fields(self, found: T) -> Mapping[str, Any]:
        """What was found, as the fields of the file."""

    @abstractmethod
    def found(self, state: S) -> T:
        """What the fields of a file say."""

    def save(self, found: T) -> None:
        """Writes down what was found, atomically."""
        state = {"format": self.FORMAT, "version": self.VERSION, "conditions": self.conditions, **self.fields(found)}
        write_bytes(self.path, json.dumps(state).encode(), force=True)

    def read(self) -> T:
        """What to go on from.

        Raises:
            ArtifactError: no such state, damaged, or of a search under other conditions; the first difference is named.
        """
        state: Any = read_artifact(str(self.path), self.FILE, self.FORMAT, self.VERSION)
        if other := difference(state.conditions, self.conditions):
            origin = Origin(str(self.path), ArtifactError, "give what it was started with, or start over with `force`")
            raise origin.refusal(f"is of a search with {other}")
        return self.found(state)

    def begin(self, nothing: T, resume: bool, force: bool) -> T:
        """What an interrupted search has found, or nothing where there is none.

        Raises:
            ArtifactError: see `read`.
            OutputError: an interrupted search that is neither gone on with nor given up.
        """
        if self.path.exists():
            if resume:
                return self.read()
            if not force:
                raise OutputError(
                    f"{self.path}: an interrupted search: go on with `resume`, or start over with `force`"
                )
        return nothing

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
