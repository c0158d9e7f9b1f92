"""What an artifact remembers of the samples it was made from, so that an evaluation can refuse them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from hydractl.data.hashes import Hashes
from hydractl.errors import ArtifactError


def fingerprint(hashes: Hashes) -> dict[str, Any]:
    """Plain JSON that stands for a set of samples: how many there are, and their hashes, 11 characters each.

    Args:
        hashes: `[N]`, as `Samples.content_hashes` returns them.
    """
    stored = np.unique(hashes).astype("<u8").tobytes()
    return {"samples": len(hashes), "hashes": base64.b64encode(stored).decode("ascii")}


def hashes_in(entry: object, where: str) -> Hashes:
    """The hashes of a fingerprint, ascending and each once.

    Raises:
        ArtifactError: it is damaged; to pass over it would let a leak through.
    """
    text = entry.get("hashes") if isinstance(entry, Mapping) else None
    try:
        return np.frombuffer(base64.b64decode(text or b"", validate=True), dtype="<u8").astype(np.uint64)
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"{where}: its list of samples used is damaged: make the file again") from error
