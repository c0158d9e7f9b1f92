"""Our file, read and written without the table of any architecture."""

from __future__ import annotations

from pathlib import Path

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.manifest import KEY, SpecOf, from_metadata, to_metadata
from hydractl.checkpoint.tensors import open_weights
from hydractl.checkpoint.writer import write_safetensors
from hydractl.errors import CheckpointError


def read(path: str | Path, spec_of: SpecOf | None = None) -> Checkpoint:
    """The checkpoint in a file of ours; its tensors stay on disk until asked for.

    Args:
        spec_of: reads the spec of a file of version 1, which holds the source's config in its place.

    Raises:
        CheckpointError: not a file of ours, damaged, of a newer version, or of version 1 without `spec_of`.
    """
    if not Path(path).is_file():
        raise CheckpointError(f"{path}: no such file: check the name")
    tensors, metadata = open_weights(Path(path))
    if KEY not in metadata:
        raise CheckpointError(f"{path}: was not written by hydractl: open it with hydractl.load")
    return from_metadata(str(path), metadata, tensors, spec_of)


def write(checkpoint: Checkpoint, path: str | Path, force: bool = False) -> None:
    """Writes a checkpoint as one self-contained file, atomically, one tensor in memory at a time.

    Raises:
        CheckpointError: its tensors do not fit its spec.
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    metadata = to_metadata(checkpoint)
    from_metadata(checkpoint.name, metadata, checkpoint.tensors)  # what is written can be read
    write_safetensors(Path(path), checkpoint.tensors, metadata, force)
