"""The samples a model was chosen, calibrated or searched on, remembered in a few bytes each.

Up to EXACT samples all are kept, as the upper 48 bits of their hashes; of more, those with the smallest hashes,
which is a fair draw of EXACT. A sample that was never seen is taken for one that was with probability
kept / 2**48: 1,500 remembered and 50,000 asked about give one false alarm in four million evaluations. Where N
samples are remembered by EXACT, a leak of k samples goes unnoticed with probability (1 - EXACT / N)**k.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hydractl.data.hashes import Hashes
from hydractl.errors import ArtifactError

EXACT = 20_000
DROPPED_BITS = np.uint64(16)


@dataclass(frozen=True)
class _Seen:
    samples: int  # how many there were
    complete: bool  # whether every one of them is among the keys
    keys: NDArray[np.uint64]  # ascending, each once


def sketch(hashes: Hashes) -> dict[str, Any]:
    """Plain JSON that remembers a set of samples in about 7 characters each.

    Args:
        hashes: `[N]`, as `Samples.content_hashes` returns them.
    """
    keys = np.unique(hashes >> DROPPED_BITS)
    return _written(_Seen(len(hashes), len(keys) <= EXACT, keys[:EXACT]))


def remembered(entry: object, hashes: Hashes, where: str) -> NDArray[np.bool_]:
    """Which of the samples are remembered, `[N]`; a sketch that does not keep them all misses some.

    Args:
        entry: what `sketch` or `union` returned.
        hashes: `[N]`, of the samples asked about.
        where: the artifact, for messages.

    Raises:
        ArtifactError: the sketch is damaged; to pass over it would let a leak through.
    """
    return np.isin(hashes >> DROPPED_BITS, _read(entry, where).keys)


def union(entries: Iterable[object], where: str) -> dict[str, Any]:
    """One sketch of all samples remembered by any of several, as a fused model carries for its members.

    Raises:
        ArtifactError: a sketch is damaged.
    """
    parts = [_read(entry, where) for entry in entries]
    keys = np.unique(np.concatenate([part.keys for part in parts])) if parts else np.array([], dtype=np.uint64)
    if cut := [part.keys[-1] for part in parts if not part.complete]:
        # Beyond the smallest cut the draw would no longer be even over the parts.
        keys = keys[keys <= min(cut)]
    complete = not cut and len(keys) <= EXACT
    samples = len(keys) if complete else max(part.samples for part in parts)
    return _written(_Seen(samples, complete, keys[:EXACT]))


def _written(seen: _Seen) -> dict[str, Any]:
    gaps = np.diff(seen.keys, prepend=np.uint64(0)).astype("<u8")
    # Bytes of one significance together: the upper ones are all zero, and zlib leaves nothing of them.
    planes = np.ascontiguousarray(gaps.view(np.uint8).reshape(-1, 8).T)
    packed = base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode("ascii")
    return {"samples": seen.samples, "complete": seen.complete, "hashes": packed}


def _read(entry: object, where: str) -> _Seen:
    try:
        if not isinstance(entry, Mapping):
            raise TypeError("not an object")
        packed = base64.b64decode(entry["hashes"], validate=True)
        planes = np.frombuffer(zlib.decompressobj().decompress(packed, 8 * EXACT), dtype=np.uint8).reshape(8, -1)
        keys = np.cumsum(np.ascontiguousarray(planes.T).view("<u8").ravel(), dtype=np.uint64)
        if len(keys) < min(1, int(entry["samples"])):
            raise ValueError("no keys of some samples")
        return _Seen(int(entry["samples"]), bool(entry["complete"]), keys)
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise ArtifactError(f"{where}: its record of samples used is damaged: make the file again") from error
