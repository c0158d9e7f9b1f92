"""How a file came to be, for its manifest: what it was made of, with which options and library versions.

No paths and no dates: the same inputs and options give the same bytes wherever and whenever the command runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from hydractl.checkpoint.contents import Checkpoint, identity

LIBRARIES = ("hydractl", "torch", "safetensors")


def with_provenance(
    result: Checkpoint, command: str, inputs: Sequence[Checkpoint], options: Mapping[str, Any]
) -> Checkpoint:
    """The checkpoint `result` with its provenance: the command, its inputs' identities and histories, its options.

    Args:
        inputs: what it was made of; all of their weights are read once.
        options: those that determine the result; None stands for one that was not used and is left out.
    """
    return replace(
        result,
        provenance={
            "command": command,
            "options": {name: value for name, value in options.items() if value is not None},
            "inputs": [_input(checkpoint) for checkpoint in inputs],
            "versions": {library: version(library) for library in LIBRARIES},
        },
    )


def _input(checkpoint: Checkpoint) -> dict[str, Any]:
    # A history holds the search data of every step, which an evaluation must refuse however long ago it was used.
    history = {"provenance": dict(checkpoint.provenance)} if checkpoint.provenance else {}
    return {"sha256": identity(checkpoint), **history}
